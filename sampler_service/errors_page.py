"""``docs/errors.md``, written from the table: ``python -m sampler_service.errors_page > docs/errors.md``."""

from __future__ import annotations

from sampler_service.errors import DOMAIN, TABLE

_HEAD = f"""\
# Errors

A call that is refused ends with a gRPC status; in `VerifyStream` a step that is refused is answered by a `StepError`
with the same content, and the stream goes on. Both carry:

- the **code** of gRPC, which says what kind of trouble it is and whether a retry can help;
- the **reason**, a stable name from the table below, in `google.rpc.ErrorInfo` (domain `{DOMAIN}`) or
  `StepError.reason`, and at the beginning of the text;
- the **text**: what was wrong, what was expected, which request and field;
- **metadata**: `field`, `request` and `position` where they apply, for programs;
- `google.rpc.BadRequest` or `StepError.field_violations` with the path of the field, for `INVALID_ARGUMENT`;
- `google.rpc.RetryInfo` or `StepError.retry_delay_us`, where a retry makes sense.

What gRPC itself refuses has a code and a text but no reason: a message above the receive limit
(`RESOURCE_EXHAUSTED`), an unknown method (`UNIMPLEMENTED`), a lost connection (`UNAVAILABLE`). On a stream these end
the stream.

A bad row of logits is no error of the step: its request has the status `INVALID_LOGITS` in the result, and every other
request its answer.

"""


def render() -> str:
    """The page's text."""
    rows = ["| reason | code | cause | remedy |", "|---|---|---|---|"]
    rows += [f"| `{reason}` | `{e.code.name}` | {e.cause} | {e.remedy} |" for reason, e in sorted(TABLE.items())]
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(render(), end="")
