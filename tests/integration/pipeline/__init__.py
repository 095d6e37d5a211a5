"""The template's whole system. A package, so that its processes end with its last test."""
