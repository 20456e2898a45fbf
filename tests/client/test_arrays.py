"""Every kind of array an engine may hold reaches the wire with its elements, and nothing is rounded silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sampler_client import InvalidStep, Step
from sampler_client.arrays import as_numpy, doubles, integers, logits
from sampler_client.codec.request import encode_verify_request
from sampler_client.v1 import sampler_pb2 as pb

ROWS = np.asarray([[0.5, -1.0, 3.0], [-np.inf, 2.0, 0.25]], dtype=np.float32)  # exact in all three dtypes


def on_the_wire(array: Any) -> pb.Tensor:  # noqa: ANN401
    step = Step(target_logits=array, draft_lengths=[1], draft_token_ids=[0])
    return pb.VerifyRequest.FromString(encode_verify_request(step)).step.target_logits


def torch_tensor(dtype: str) -> Callable[[Any], Any]:
    def make(rows: Any) -> Any:  # noqa: ANN401
        torch = pytest.importorskip("torch")
        return torch.tensor(rows).to(getattr(torch, dtype))

    return make


WAYS: dict[str, tuple[Callable[[Any], Any], int, Any]] = {
    "float32": (lambda rows: rows, pb.DTYPE_FLOAT32, "<f4"),
    "float16": (lambda rows: rows.astype(np.float16), pb.DTYPE_FLOAT16, "<f2"),
    "bfloat16": (lambda rows: rows.astype(ml_dtypes.bfloat16), pb.DTYPE_BFLOAT16, ml_dtypes.bfloat16),
    "big-endian": (lambda rows: rows.astype(">f4"), pb.DTYPE_FLOAT32, "<f4"),
    "columns first": (np.asfortranarray, pb.DTYPE_FLOAT32, "<f4"),
    "rows with gaps": (lambda rows: np.pad(rows, ((0, 0), (0, 5)))[:, :3], pb.DTYPE_FLOAT32, "<f4"),
    "bfloat16 rows with gaps": (
        lambda rows: np.repeat(rows, 2, axis=0)[::2].astype(ml_dtypes.bfloat16),
        pb.DTYPE_BFLOAT16,
        ml_dtypes.bfloat16,
    ),
    "rows backwards": (lambda rows: rows[::-1].copy()[::-1], pb.DTYPE_FLOAT32, "<f4"),
    "columns with gaps": (lambda rows: np.repeat(rows, 2, axis=1)[:, ::2], pb.DTYPE_FLOAT32, "<f4"),
    "read-only": (lambda rows: np.frombuffer(rows.tobytes(), "<f4").reshape(2, 3), pb.DTYPE_FLOAT32, "<f4"),
    "lists": (lambda rows: rows.tolist(), pb.DTYPE_FLOAT32, "<f4"),
    "torch float32": (torch_tensor("float32"), pb.DTYPE_FLOAT32, "<f4"),
    "torch float16": (torch_tensor("float16"), pb.DTYPE_FLOAT16, "<f2"),
    "torch bfloat16": (torch_tensor("bfloat16"), pb.DTYPE_BFLOAT16, ml_dtypes.bfloat16),
    "torch rows with gaps": (lambda rows: torch_tensor("bfloat16")(rows)[:, :2], pb.DTYPE_BFLOAT16, ml_dtypes.bfloat16),
}


@pytest.mark.parametrize("way", WAYS)
def test_logits_arrive(way: str) -> None:
    make, dtype, element = WAYS[way]
    sent = on_the_wire(make(ROWS.copy()))
    columns = 2 if way == "torch rows with gaps" else 3
    assert (sent.dtype, list(sent.shape), sent.row_stride) == (dtype, [2, columns], 0)
    arrived = np.frombuffer(sent.inline_bytes, dtype=element).reshape(2, columns)
    np.testing.assert_array_equal(arrived.astype(np.float32), ROWS[:, :columns])


def test_dlpack_shares_memory() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(2, 3, dtype=torch.bfloat16)
    seen = as_numpy(tensor, "x")
    tensor[1, 2] = 1.5
    assert float(seen[1, 2]) == 1.5
    del tensor  # the memory lives as long as the view of it
    assert float(seen[1, 2]) == 1.5


def test_dlpack_refusals() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidStep, match="require gradient"):
        as_numpy(torch.zeros(2, requires_grad=True), "x")

    class OnAGpu:
        def __dlpack__(self) -> object:
            raise AssertionError("never asked for")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    with pytest.raises(InvalidStep, match="device type 2, expected 1") as refused:
        as_numpy(OnAGpu(), "target_logits")
    assert refused.value.reason == "LAYOUT_UNSUPPORTED"


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.bool_, np.complex64])
def test_logits_of_other_dtypes_are_refused(dtype: type) -> None:
    with pytest.raises(InvalidStep) as refused:
        logits(np.zeros((1, 2), dtype=dtype), "target_logits")
    assert refused.value.reason == "DTYPE_UNSUPPORTED"
    assert refused.value.fields[0].field == "target_logits"


@pytest.mark.parametrize("rows", [[1.0, 2.0], [[[1.0]]], [[1.0], [1.0, 2.0]], "text", [["a"]], None])
def test_what_is_no_matrix_is_refused(rows: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidStep):
        logits(rows, "target_logits")


def test_integers() -> None:
    assert integers([1, -1], "x").dtype == np.int64
    assert integers(np.asarray([1], dtype=np.int32), "x").dtype == np.int32
    assert integers(np.asarray([1], dtype=np.uint16), "x").tolist() == [1]
    assert integers([], "x").shape == (0,)
    wrong: Any
    for wrong in ([1.0], [True], [2**63], [2**70], [[1]], ["1"], [None]):
        with pytest.raises(InvalidStep):
            integers(wrong, "x")


def test_doubles() -> None:
    assert doubles([1, 2.5], "x").tolist() == [1.0, 2.5]
    for wrong in ([[1.0]], ["a"], [True]):
        with pytest.raises(InvalidStep):
            doubles(wrong, "x")
