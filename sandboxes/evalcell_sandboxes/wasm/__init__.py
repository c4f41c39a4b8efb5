"""CPython compiled to WebAssembly, behind a host that denies by default."""
