"""Where what belongs to the user is kept, as against what could be made again."""

import os
from pathlib import Path

from evalcell_sandboxes.caching import private_dir

VARIABLE = "EVALCELL_DATA_DIR"


def data_path() -> Path:
    """Where the data is or would be: `EVALCELL_DATA_DIR`, or the user's data directory. Nothing is made."""
    from platformdirs import user_data_path  # not needed by most commands

    configured = os.environ.get(VARIABLE)
    return Path(configured) if configured else user_data_path("evalcell", appauthor=False)


def data_dir(*parts: str) -> Path:
    """A directory in it, made for this user alone."""
    path = private_dir(data_path(), VARIABLE)
    for part in parts:
        path = private_dir(path / part, VARIABLE)
    return path
