"""The registry that every job of this package is in. A module of its own, so that the jobs can import it."""

from ringfence import App

app = App()
