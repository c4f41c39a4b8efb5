"""What CI promises to have, so that it skips no test for want of it: a test that is skipped proves nothing."""

import os
import sys
from typing import NoReturn

import pytest


def lacking(what: str) -> NoReturn:
    """Ends a test that cannot run for want of something: it fails where that is promised, and is skipped elsewhere."""
    promised = os.environ.get("CI") == "true" and sys.platform == "linux" and os.geteuid() == 0
    (pytest.fail if promised else pytest.skip)(what)
