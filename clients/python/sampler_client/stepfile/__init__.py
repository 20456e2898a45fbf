"""Step files: a step written down as JSON, to be replayed, compared and attached to a bug report.

``docs/stepfile.md`` describes the form. The same code runs a file in-process and against a service; only the
transport differs, any callable that takes a :class:`~sampler_client.step.Step`, returns a
:class:`~sampler_client.result.StepResult` and raises a :class:`~sampler_client.errors.SamplerError`.
"""

from sampler_client.stepfile.parse import parse_step
from sampler_client.stepfile.render import render_error, render_result
from sampler_client.stepfile.run import ExitStatus, Transport, answer, verify_files

__all__ = ["ExitStatus", "Transport", "answer", "parse_step", "render_error", "render_result", "verify_files"]
