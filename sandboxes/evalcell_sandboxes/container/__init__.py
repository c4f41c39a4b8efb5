"""CPython with packages from PyPI, in a locked-down container."""
