"""The contract's order of elements, value descending and then id ascending, as one integer per element.

Places are numbers that ascend with the ids. Distinct places have distinct keys, so any selection of the largest keys
is exact at ties and has one order. A 16-bit value and a 16-bit place share an int32, which a device compares and
shuffles several times faster than the int64 that a float32 value needs.
"""

import triton
import triton.language as tl


@triton.jit
def order_key(values, places):
    """Keys that descend in the contract's order: int32 for 16-bit values, int64 for float32.

    Args:
        values: float16, bfloat16 or float32, no NaN.
        places: int32 from 0, below 2^16 beside 16-bit values.
    """
    # The two zeros are equal values: both count as +0. Negative floats descend as integers, so all but their sign is
    # turned round.
    if values.dtype.primitive_bitwidth == 16:
        bits = values.to(tl.int16, bitcast=True).to(tl.int32)
        bits = tl.where((bits & 0x7FFF) == 0, 0, bits)
        key = ((bits ^ ((bits >> 15) & 0x7FFF)) << 16) | (0xFFFF - places)
    else:
        bits = values.to(tl.int32, bitcast=True)
        bits = tl.where((bits & 0x7FFFFFFF) == 0, 0, bits)
        ascending = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
        key = (ascending << 32) | tl.cast(0x7FFFFFFF - places, tl.int64)
    return key


@triton.jit
def ascending_key(values):
    """int32 that ascends with the values, float16, bfloat16 or float32 without NaN; the two zeros have one key."""
    if values.dtype.primitive_bitwidth == 16:
        bits = values.to(tl.int16, bitcast=True).to(tl.int32)
        bits = tl.where((bits & 0x7FFF) == 0, 0, bits)
        key = bits ^ ((bits >> 15) & 0x7FFF)
    else:
        bits = values.to(tl.int32, bitcast=True)
        bits = tl.where((bits & 0x7FFFFFFF) == 0, 0, bits)
        key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return key


@triton.jit
def value_of_ascending(key, DTYPE: tl.constexpr):
    """The value of that dtype, as float32, that has an :func:`ascending_key`, int32."""
    if DTYPE.primitive_bitwidth == 16:
        value = (key ^ ((key >> 15) & 0x7FFF)).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)
    else:
        value = (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    return value


@triton.jit
def place_of_key(key):
    """The place that went into :func:`order_key`, int32."""
    if key.dtype.primitive_bitwidth == 32:
        place = 0xFFFF - (key & 0xFFFF)
    else:
        place = 0x7FFFFFFF - (key & 0xFFFFFFFF).to(tl.int32)
    return place


@triton.jit
def value_of_key(key, DTYPE: tl.constexpr):
    """The value that went into :func:`order_key`, of that dtype, as float32; +0.0 for either zero."""
    if key.dtype.primitive_bitwidth == 32:
        ascending = key >> 16
        value = (ascending ^ ((ascending >> 15) & 0x7FFF)).to(tl.int16).to(DTYPE, bitcast=True).to(tl.float32)
    else:
        ascending = (key >> 32).to(tl.int32)
        value = (ascending ^ ((ascending >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    return value
