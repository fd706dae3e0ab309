"""`python -m lastbit_ray`."""

import sys

from .command import main

sys.exit(main())
