"""`ringfence demo`: real files through the whole system while one worker is frozen and another killed, then the reckoning.

``run`` is the order of events; each other module is one part of it.
"""
