"""``python -m sampler_loadtest``."""

import sys

from sampler_loadtest.cli import main

sys.exit(main())
