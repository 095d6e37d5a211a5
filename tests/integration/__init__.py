"""Whole systems on emulators. A package, so that the processes of its fixtures end with its last test."""
