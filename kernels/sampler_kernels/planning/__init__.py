"""Step -> Batch: what a checked step becomes on the device, part by part; `plan.py` puts the parts together."""
