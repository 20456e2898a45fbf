"""``python -m sampler_client``."""

import sys

from sampler_client.cli import main

sys.exit(main())
