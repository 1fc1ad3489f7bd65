"""Secrets that scanners of repositories know: the warning names them, scrub removes
them.

`python -P fuzz --kind scrub` tries many more, in more places of a trace.
"""

from __future__ import annotations

import time
from random import Random

from fuzz import known, scrub
from fuzz.oracle_of_secrets import detected, plugins
from tests.cases import Cases

from fusetui.trace.scrub.detect import find_secret_names
from fusetui.trace.scrub.names import Names
from fusetui.trace.scrub.secrets import Placeholders
from fusetui.trace.scrub.texts import scrub_secrets

DRAWS = 20  # of each form
HOSTILE_CHARS = 16_000
MAX_HOSTILE_SECONDS = 15  # of the processor
FORMS = {
    **known.ISSUED,
    **{name: f"{name}={form}" for name, form in known.LONG_NAMES.items()},
}
INNOCENT = (
    *(
        "hf_LlamaForCausalLMWrapper",
        "gemm_r8_split_k_reduce_kernel_f16",
        "sm_pat_kernel_80",
    ),
    *(
        "key=triton_poi_fused_add_0",
        "cache_key=abc1234567890abcdef1234567890",
        "auth=basic",
    ),
    *(
        "forward_pass: 12",
        "author: Ada",
        "secretary=Ada",
        "password_policy=required",
        "pk.a",
    ),
    *(
        "api: cudaLaunchKernel_v7000",
        "PyJWT==2.3.0",
        "SecretStorage==3.3.1",
        "s.elementwise",
    ),
    *(
        "key=sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
    ),
    *(
        "20240101:some_function_of_thirty_five_letters_x",
        "AC voltage",
        "a pass of 12 x",
    ),
    *(
        "SKTransformerEncoderLayerWithSelfAttention2",
        "APEXKernels1",
        "std::pair<Key, Secret>",
    ),
    *(
        "the key is missing",
        "password required",
        "basic block of 12 warps",
        "secret sauce v2",
    ),
    *(
        "dict.keys(...) 128x128x64",
        "SHA256",
        "commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
    ),
    *("nn.Module: Token_0", "aten::token1", "GITHUB_SHA=0a1b2c3d4e5f6071"),
)
HOSTILE = (
    *(
        "eyJ",
        "_eyJ",
        "sk-",
        "key=",
        "token=xxxxxx",
        "password:",
        "password ",
        "key ",
        "://a:",
        "t1.",
    ),
    *(
        "curl -u ",
        "Authorization: ",
        "BEGIN PRIVATE KEY",
        "pk.eyJ",
        "12345678:",
        "'a' == ",
        "\\n",
    ),
    *("aws key '", "[31m", "--key ", "<secret1", "AKIA", "\\\\a"),
)


def scrubbed(text: str) -> str:
    return scrub_secrets(text, Names(Placeholders()))


def test_every_known_form_of_a_secret_is_warned_of_and_removed() -> None:
    with Cases() as cases:
        for name, form in FORMS.items():
            rnd = Random(name)
            for _ in range(DRAWS):
                text = known.drawn(form, rnd)
                with cases.case(name, text):
                    assert find_secret_names({}, [text])
                    assert "<secret1>" in scrubbed(text)


def test_every_value_after_the_name_of_a_secret_is_warned_of_and_removed() -> None:
    with Cases() as cases:
        for sign in known.SIGNS:
            for name in known.NAMES:
                password = known.password(Random(name + sign))
                text = sign.format(n=name, v=password)
                with cases.case(text):
                    assert find_secret_names({}, [text])
                    assert password not in scrubbed(text)


def test_text_that_only_looks_like_a_secret_stays() -> None:
    with Cases() as cases:
        for text in INNOCENT:
            with cases.case(text):
                assert find_secret_names({}, [text]) == ()
                assert scrubbed(text) == text


def test_a_key_that_is_warned_of_is_removed_by_its_name() -> None:
    """Whatever the form of the key: brackets and blanks are no part of a variable."""
    for key in ("password[0]", "my password (old)", "db.passwd", "api key", "Secret/1"):
        assert scrub.warned_and_left({key: "hunter2"}) == ((key,), "")


def test_the_oracle_has_all_rules_but_those_that_guess() -> None:
    """A password has no form, and neither has what is 40 characters of base64."""
    assert len(plugins()) >= 24
    assert list(detected('value = "c3VwZXIgbG9uZyBzdHJpbmcgc2hvdWxkIGNhdXNl"')) == []


def test_hostile_text_takes_linear_time() -> None:
    """A quadratic pattern would take a minute for one of these texts, a linear one
    takes two seconds at most."""
    with Cases() as cases:
        for piece in HOSTILE:
            text = piece * (HOSTILE_CHARS // len(piece))
            begin = time.process_time()
            find_secret_names({}, [text])
            scrubbed(text)
            with cases.case(piece):
                assert time.process_time() - begin < MAX_HOSTILE_SECONDS
