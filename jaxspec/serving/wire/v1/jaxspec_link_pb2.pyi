from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeRequest(_message.Message):
    __slots__ = ("protocol", "client")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    client: str
    def __init__(self, protocol: _Optional[int] = ..., client: _Optional[str] = ...) -> None: ...

class DescribeReply(_message.Message):
    __slots__ = ("protocol_min", "protocol_max", "server", "model", "numerics", "vocab", "max_len", "max_condition", "end_ids", "profiles", "replay_in_chunks")
    PROTOCOL_MIN_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MAX_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    VOCAB_FIELD_NUMBER: _ClassVar[int]
    MAX_LEN_FIELD_NUMBER: _ClassVar[int]
    MAX_CONDITION_FIELD_NUMBER: _ClassVar[int]
    END_IDS_FIELD_NUMBER: _ClassVar[int]
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    REPLAY_IN_CHUNKS_FIELD_NUMBER: _ClassVar[int]
    protocol_min: int
    protocol_max: int
    server: str
    model: bytes
    numerics: bytes
    vocab: int
    max_len: int
    max_condition: int
    end_ids: _containers.RepeatedScalarFieldContainer[int]
    profiles: _containers.RepeatedCompositeFieldContainer[Profile]
    replay_in_chunks: bool
    def __init__(self, protocol_min: _Optional[int] = ..., protocol_max: _Optional[int] = ..., server: _Optional[str] = ..., model: _Optional[bytes] = ..., numerics: _Optional[bytes] = ..., vocab: _Optional[int] = ..., max_len: _Optional[int] = ..., max_condition: _Optional[int] = ..., end_ids: _Optional[_Iterable[int]] = ..., profiles: _Optional[_Iterable[_Union[Profile, _Mapping]]] = ..., replay_in_chunks: bool = ...) -> None: ...

class Profile(_message.Message):
    __slots__ = ("id", "method", "rule", "window", "coding", "ell", "max_support", "sends_size", "top_k", "nucleus", "guided", "feature_width", "max_frame")
    ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    CODING_FIELD_NUMBER: _ClassVar[int]
    ELL_FIELD_NUMBER: _ClassVar[int]
    MAX_SUPPORT_FIELD_NUMBER: _ClassVar[int]
    SENDS_SIZE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    NUCLEUS_FIELD_NUMBER: _ClassVar[int]
    GUIDED_FIELD_NUMBER: _ClassVar[int]
    FEATURE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    MAX_FRAME_FIELD_NUMBER: _ClassVar[int]
    id: int
    method: str
    rule: str
    window: int
    coding: str
    ell: int
    max_support: int
    sends_size: bool
    top_k: int
    nucleus: bool
    guided: bool
    feature_width: int
    max_frame: int
    def __init__(self, id: _Optional[int] = ..., method: _Optional[str] = ..., rule: _Optional[str] = ..., window: _Optional[int] = ..., coding: _Optional[str] = ..., ell: _Optional[int] = ..., max_support: _Optional[int] = ..., sends_size: bool = ..., top_k: _Optional[int] = ..., nucleus: bool = ..., guided: bool = ..., feature_width: _Optional[int] = ..., max_frame: _Optional[int] = ...) -> None: ...

class OpenRequest(_message.Message):
    __slots__ = ("stream_id", "protocol", "model", "profile", "key", "max_len", "temperature", "top_p", "cfg_scale", "end_ids", "prompt", "label", "caption", "resume", "need_numerics")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MAX_LEN_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    CFG_SCALE_FIELD_NUMBER: _ClassVar[int]
    END_IDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    CAPTION_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    NEED_NUMERICS_FIELD_NUMBER: _ClassVar[int]
    stream_id: bytes
    protocol: int
    model: bytes
    profile: int
    key: bytes
    max_len: int
    temperature: float
    top_p: float
    cfg_scale: float
    end_ids: _containers.RepeatedScalarFieldContainer[int]
    prompt: Ids
    label: int
    caption: str
    resume: Resume
    need_numerics: bytes
    def __init__(self, stream_id: _Optional[bytes] = ..., protocol: _Optional[int] = ..., model: _Optional[bytes] = ..., profile: _Optional[int] = ..., key: _Optional[bytes] = ..., max_len: _Optional[int] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., cfg_scale: _Optional[float] = ..., end_ids: _Optional[_Iterable[int]] = ..., prompt: _Optional[_Union[Ids, _Mapping]] = ..., label: _Optional[int] = ..., caption: _Optional[str] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., need_numerics: _Optional[bytes] = ...) -> None: ...

class Ids(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("next_seq", "round", "tokens", "gained", "fed", "replies")
    NEXT_SEQ_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    GAINED_FIELD_NUMBER: _ClassVar[int]
    FED_FIELD_NUMBER: _ClassVar[int]
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    next_seq: int
    round: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    gained: _containers.RepeatedScalarFieldContainer[int]
    fed: _containers.RepeatedScalarFieldContainer[int]
    replies: bytes
    def __init__(self, next_seq: _Optional[int] = ..., round: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., gained: _Optional[_Iterable[int]] = ..., fed: _Optional[_Iterable[int]] = ..., replies: _Optional[bytes] = ...) -> None: ...

class OpenReply(_message.Message):
    __slots__ = ("frame", "next_seq", "numerics")
    FRAME_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQ_FIELD_NUMBER: _ClassVar[int]
    NUMERICS_FIELD_NUMBER: _ClassVar[int]
    frame: bytes
    next_seq: int
    numerics: bytes
    def __init__(self, frame: _Optional[bytes] = ..., next_seq: _Optional[int] = ..., numerics: _Optional[bytes] = ...) -> None: ...

class VerifyRequest(_message.Message):
    __slots__ = ("stream_id", "seq", "part", "frame")
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    stream_id: bytes
    seq: int
    part: int
    frame: bytes
    def __init__(self, stream_id: _Optional[bytes] = ..., seq: _Optional[int] = ..., part: _Optional[int] = ..., frame: _Optional[bytes] = ...) -> None: ...

class VerifyReply(_message.Message):
    __slots__ = ("seq", "part", "frame")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    seq: int
    part: int
    frame: bytes
    def __init__(self, seq: _Optional[int] = ..., part: _Optional[int] = ..., frame: _Optional[bytes] = ...) -> None: ...

class CloseRequest(_message.Message):
    __slots__ = ("stream_id",)
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    stream_id: bytes
    def __init__(self, stream_id: _Optional[bytes] = ...) -> None: ...

class CloseReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
