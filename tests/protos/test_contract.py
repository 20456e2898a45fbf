"""Properties of the wire contract that a linter does not know, read off its descriptors."""

import keyword
from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from sampler_client.v1 import sampler_pb2 as pb

FILE = pb.DESCRIPTOR
SERVICE = FILE.services_by_name["SamplerService"]

RPCS = {
    "GetServerInfo": "unary",
    "Verify": "unary",
    "VerifyStream": "stream",
    "OpenSession": "unary",
    "RenewSession": "unary",
    "CloseSession": "unary",
    "RegisterRegion": "unary",
    "UnregisterRegion": "unary",
    "ListRegions": "unary",
    "RegisterEvent": "unary",
    "UnregisterEvent": "unary",
}

# Every sampling parameter of the contract under its name in step files, and the wire field that carries it where the
# name differs because the field is a column over the requests.
PARAMETERS = {
    "method": "method",
    "temperature": "temperature",
    "draft_temperature": "draft_temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "seed": "seeds",
    "position": "positions",
    "stop_token_ids": "stop_token_ids",
    "min_tokens": "min_tokens",
    "max_tokens": "max_tokens",
    "allowed_token_ids": "allowed_token_ids",
    "allowed_token_ids_by_row": "allowed_token_ids_by_row",
    "logit_bias": "logit_bias",
    "bad_words": "bad_words",
    "repetition_penalty": "repetition_penalty",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "prompt_token_ids": "prompt_token_ids",
    "output_token_ids": "output_token_ids",
    "num_output_tokens": "num_output_tokens",
    "synthetic_rates": "synthetic_rates",
    "typical_epsilon": "typical_epsilon",
    "typical_delta": "typical_delta",
    "relaxed_top_n": "relaxed_top_n",
    "relaxed_margin": "relaxed_margin",
    "logprobs_modes": "logprobs_modes",
    "ranks": "ranks",
    "top_logprobs": "top_logprobs",
    "logprob_token_ids": "logprob_token_ids",
    "acceptance_probabilities": "acceptance_probabilities",
    "target_logsumexp": "target_logsumexp",
    "draft_logsumexp": "draft_logsumexp",
}

# Parameters whose default is not the zero value, or for which "absent" and "empty" or "zero" differ.
NEEDS_PRESENCE = {
    "temperature",
    "draft_temperature",
    "top_p",
    "max_tokens",
    "allowed_token_ids",
    "allowed_token_ids_by_row",
    "repetition_penalty",
    "typical_epsilon",
    "typical_delta",
    "relaxed_top_n",
    "relaxed_margin",
    "logprobs_modes",
    "ranks",
}

# Columns in which -1 is a legal entry: as int32 it would cost ten bytes an entry.
MINUS_ONE_COLUMNS = {
    ("Step", "draft_block_index"),
    ("Step", "num_output_tokens"),
    ("TokenBitmask", "mask_index"),
    ("StepResult", "bad_row"),
}

# Words that some language reserves and its generator would have to rename, Python's own aside.
RESERVED_ELSEWHERE = (
    "auto bool case catch char class const default delete do double enum explicit export extern float fn friend "
    "func go goto impl inline int interface let long loop map match mod move mut namespace new operator package "
    "private protected public range ref register select self short signed sizeof static struct super switch "
    "template this throw trait type typedef typeof union unsafe unsigned use using var virtual void volatile where"
)


def enums() -> list[EnumDescriptor]:
    """Every enum of the contract; none is nested."""
    return list(FILE.enum_types_by_name.values())


def messages_below(message: Descriptor) -> Iterator[Descriptor]:
    """The message and all messages reachable from it, each once."""
    seen: dict[str, Descriptor] = {}
    waiting = [message]
    while waiting:
        current = waiting.pop()
        if current.full_name not in seen:
            seen[current.full_name] = current
            waiting.extend(field.message_type for field in current.fields if field.message_type is not None)
    yield from seen.values()


def fields_below(message: Descriptor) -> Iterator[FieldDescriptor]:
    """All fields of the message and of the messages reachable from it."""
    for current in messages_below(message):
        yield from current.fields


def repeated_messages_below(message: Descriptor) -> set[str]:
    """Full names of the repeated message fields among them: what costs one parse an entry."""
    return {field.full_name for field in fields_below(message) if field.is_repeated and field.message_type is not None}


def test_file_stands_alone() -> None:
    assert FILE.package == "sampler.v1"
    assert all(dependency.name.startswith("google/protobuf/") for dependency in FILE.dependencies)


def test_service_has_exactly_the_rpcs() -> None:
    kinds = {
        method.name: {(False, False): "unary", (True, True): "stream"}.get(
            (method.client_streaming, method.server_streaming), "other"
        )
        for method in SERVICE.methods
    }
    assert kinds == RPCS


@pytest.mark.parametrize("enum", enums(), ids=lambda enum: enum.name)
def test_enum_starts_unspecified(enum: EnumDescriptor) -> None:
    assert enum.values[0].number == 0
    assert enum.values[0].name.endswith("_UNSPECIFIED")
    assert [value.number for value in enum.values] == list(range(len(enum.values)))


def test_every_parameter_has_a_field() -> None:
    names = {field.name for field in [*pb.Step.DESCRIPTOR.fields, *pb.SamplingParams.DESCRIPTOR.fields]}
    assert set(PARAMETERS.values()) <= names


def test_sampling_params_hold_nothing_but_parameters() -> None:
    assert {field.name for field in pb.SamplingParams.DESCRIPTOR.fields} <= set(PARAMETERS)


@pytest.mark.parametrize("name", [field.name for field in pb.SamplingParams.DESCRIPTOR.fields])
def test_presence_follows_the_default(name: str) -> None:
    field = pb.SamplingParams.DESCRIPTOR.fields_by_name[name]
    if field.message_type is None:  # messages always have presence, scalars only where they need it
        assert field.has_presence == (name in NEEDS_PRESENCE)
    else:
        assert field.has_presence


def test_absent_and_empty_modes_differ() -> None:
    empty = pb.SamplingParams(logprobs_modes=pb.LogprobsModes())
    assert not pb.SamplingParams.FromString(pb.SamplingParams().SerializeToString()).HasField("logprobs_modes")
    assert pb.SamplingParams.FromString(empty.SerializeToString()).HasField("logprobs_modes")


def test_allowed_lists_can_both_be_set_and_so_be_refused() -> None:
    # In a oneof the parser would drop the first one silently.
    assert pb.SamplingParams.DESCRIPTOR.fields_by_name["allowed_token_ids"].containing_oneof is None
    assert pb.SamplingParams.DESCRIPTOR.fields_by_name["allowed_token_ids_by_row"].containing_oneof is None


@pytest.mark.parametrize("field", [*fields_below(pb.VerifyStreamRequest.DESCRIPTOR)], ids=lambda field: field.full_name)
def test_no_parameter_is_single_precision(field: FieldDescriptor) -> None:
    assert field.type != FieldDescriptor.TYPE_FLOAT


@pytest.mark.parametrize("name", ["seeds", "positions"])
def test_seeds_and_positions_are_fixed64(name: str) -> None:
    assert pb.Step.DESCRIPTOR.fields_by_name[name].type == FieldDescriptor.TYPE_FIXED64
    largest = 2**64 - 1
    sent = pb.Step(seeds=[largest], positions=[largest])
    assert list(getattr(pb.Step.FromString(sent.SerializeToString()), name)) == [largest]


def test_returned_seed_is_fixed64() -> None:
    assert pb.StepResult.DESCRIPTOR.fields_by_name["seed"].type == FieldDescriptor.TYPE_FIXED64


def test_columns_that_may_hold_minus_one_cost_one_byte() -> None:
    for message, name in MINUS_ONE_COLUMNS:
        field = FILE.message_types_by_name[message].fields_by_name[name]
        assert field.type == FieldDescriptor.TYPE_SINT32, field.full_name


def test_columns_are_packed() -> None:
    # Tag and length once, then a byte an entry: 64 small entries take under twice 64 bytes only if they are packed.
    assert len(pb.Step(draft_lengths=[4] * 64).SerializeToString()) < 2 * 64


def test_result_repeats_no_message_but_one_a_mode() -> None:
    assert repeated_messages_below(pb.StepResult.DESCRIPTOR) == {"sampler.v1.StepResult.logprobs"}
    assert all(field.message_type is None for field in pb.LogprobsResult.DESCRIPTOR.fields)


def test_step_repeats_messages_only_where_they_are_few() -> None:
    assert repeated_messages_below(pb.Step.DESCRIPTOR) == {
        "sampler.v1.Step.params",
        "sampler.v1.Step.draft_blocks",
        "sampler.v1.OutputRegions.logprobs",
    }


@pytest.mark.parametrize("rpc", RPCS)
def test_no_answer_tells_a_secret(rpc: str) -> None:
    output = SERVICE.methods_by_name[rpc].output_type
    told = {field.full_name for field in fields_below(output) if field.name in {"session_id", "handle"}}
    assert told <= {"sampler.v1.OpenSessionResponse.session_id"}


def test_owned_things_are_named_together_with_their_session() -> None:
    for name, method in SERVICE.methods_by_name.items():
        fields = method.input_type.fields_by_name
        if name not in {"GetServerInfo", "Verify", "VerifyStream", "OpenSession"}:
            assert fields["session_id"].type == FieldDescriptor.TYPE_BYTES, name


def test_stream_step_errors_say_what_unary_errors_say() -> None:
    names = {field.name for field in pb.StepError.DESCRIPTOR.fields}
    assert {"code", "reason", "message", "metadata", "field_violations"} <= names
    assert {field.name for field in pb.VerifyStreamResponse.DESCRIPTOR.oneofs[0].fields} == {"result", "error"}


def test_no_field_is_called_like_a_reserved_word() -> None:
    names = {field.name for message in FILE.message_types_by_name.values() for field in message.fields}
    assert not names & {*RESERVED_ELSEWHERE.split(), *keyword.kwlist}
