"""``python -m sampler_service`` is the command ``sampler-service``."""

from sampler_service.cli import main

main()
