"""Providers behind one small interface: one file a provider, everything that differs declared as data."""
