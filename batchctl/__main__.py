"""`python -m batchctl`: the same as the command `batchctl`."""

import sys

from batchctl.cli import main

sys.exit(main())
