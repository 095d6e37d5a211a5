"""Ringfence beside its peers on one machine: `make bench`."""
