"""The real core in one thread, under a virtual clock and a seed: every interleaving is chosen, and so can be chosen again."""
