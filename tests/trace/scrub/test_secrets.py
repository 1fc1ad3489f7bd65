"""What looks like a secret, and what only sounds like one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fusetui.trace import open_trace
from fusetui.trace.scrub.detect import find_secret_names, find_tokens, secrets_of
from fusetui.trace.scrub.secrets import Secrecy, is_secret, secrecy
from fusetui.trace.scrub.texts import Texts

TOKENS = {
    "a Hugging Face token": "hf_" + "aB3dE5gH7jK9" * 3,
    "a GitHub token": "ghp_" + "a1B2" * 9,
    "a GitLab token": "glpat-AbCdEf123456789_xyz0",
    "an API key": "sk-proj-Ab12Cd34Ef56Gh78",
    "an AWS key": "AKIA" + "ABCD1234" * 2,
    "a Slack token": "xoxb-123456789012-abcdefGHIJ",
    "a Google key": "AIza" + "Sy12345678" * 3 + "abcde",
    "a JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjMifQ.dozjgNryP4J3",
    "a private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    "a password in a URL": "postgres://ada:hunter2@db/x",
    "a bearer token": "Authorization: Bearer abcDEF123456789",
}


@pytest.mark.parametrize("kind", TOKENS)
def test_known_forms_of_tokens(kind: str) -> None:
    assert [found for *_, found in find_tokens(f"x {TOKENS[kind]} y")] == [kind]


@pytest.mark.parametrize(
    "text",
    ["task-aware-scheduling-of-kernels-1", "hf_hub_download", "aten::sk-1", "http://a:80/b@c",
     "eyJ.a.b", "ghp_short", "basic block of 12 warps", "postgres://ada:***@db"],
)  # fmt: skip
def test_text_that_only_looks_like_a_token_is_none(text: str) -> None:
    assert list(find_tokens(text)) == []


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "DB_PASSWORD",
     "SIGNING_KEY", "accessToken", "api_key", "apiKey", "client-secret", "db.passwd", "GH_TOKEN_2",
     "DB_PWD", "Authorization"],
)  # fmt: skip
def test_names_of_secrets(name: str) -> None:
    assert secrecy(name) >= Secrecy.USUAL


@pytest.mark.parametrize(
    "name",
    ["HF_TOKENIZERS_PARALLELISM", "TOKENIZERS_PARALLELISM", "cache_key", "CACHE_KEY", "primary_key",
     "tokens_per_s", "max_tokens", "num_tokens", "eos_token", "next_token", "pad_token_id", "key",
     "PWD", "OLDPWD", "HF_TOKEN_PATH", "dispatch_key", "monkey", "author", "keys"],
)  # fmt: skip
def test_names_that_only_sound_like_it(name: str) -> None:
    assert secrecy(name) < Secrecy.USUAL


@pytest.mark.parametrize(
    ("name", "value"),
    [("HF_TOKEN", ""), ("HF_TOKEN", "***"), ("HF_TOKEN", "hf_****"), ("HF_TOKEN", "<unset>"),
     ("HF_TOKEN", "None"), ("HF_TOKEN", "${HF_TOKEN}"), ("SSH_KEY", "/root/.ssh/id_rsa"),
     ("MY_KEY", "12345"), ("token", "the"), ("token", "abcdefghijklmnopqrstuvw"), ("api_key", None),
     ("PASSWORD", "xxxxxxxx"), ("api_key", 3)],
)  # fmt: skip
def test_a_value_that_is_none_is_no_alarm(name: str, value: Any) -> None:
    assert not is_secret(name, value)


def test_asterisks_within_a_password_are_no_mask() -> None:
    assert is_secret("password", "f5p8IAysZMl02***h7")
    assert not is_secret("password", "f5p8***")


def test_secrets_are_named_once_and_never_told() -> None:
    token = TOKENS["a GitHub token"]
    keys = {
        "metadata": {"env": {"HF_TOKEN": "qwertyuiop", "HOME": "/root"}},
        "more": [{"HF_TOKEN": "x1y2z3"}],
        "note": f"cloned with {token}",
    }
    found = find_secret_names(
        keys, ["aten::mm", "run WANDB_API_KEY=0123abcd", "thread 3"]
    )
    assert found == ("HF_TOKEN", "a GitHub token", "WANDB_API_KEY")
    assert not any(value in str(found) for value in (token, "qwertyuiop", "0123abcd"))


@pytest.mark.parametrize(
    "command",
    [
        "sshpass -p hunter22 ssh gpu",
        "sshpass -phunter22 ssh gpu",
        "sshpass -e -p 'hunter22' scp a b",
        "mysql -phunter22",
        "mysqldump -u root -h db -phunter22 x",
    ],
)
def test_password_after_an_option_p_is_found_and_removed(command: str) -> None:
    assert find_secret_names({}, [command]) == ("password",)
    assert "hunter22" not in Texts().scrub(command)


@pytest.mark.parametrize(
    "command",
    ["ssh -p 2222 gpu", "mkdir -p logs", "mysql -u root -p", "sshpass -f file ssh gpu"],
)
def test_other_options_of_one_letter_are_no_passwords(command: str) -> None:
    assert find_secret_names({}, [command]) == ()


@pytest.mark.parametrize(
    ("text", "private"),
    [
        ("%5C%5Cnas01%5Cshare%5Cx.bin", "nas01"),
        ("url=https%3A%2F%2Fgpu7.corp.example.com%2Fdata", "gpu7"),
        ("host%3Dgpu7.corp.example.com", "gpu7"),
        ("host%253Dgpu7.corp.example.com", "gpu7"),
        ("addr%3D10.1.2.3%26port%3D80", "10.1.2.3"),
        ("mail%3Aada%40gpu7.corp.example.com", "ada"),
    ],
)
def test_private_parts_of_a_url_encoded_text_are_scrubbed(
    text: str, private: str
) -> None:
    assert private not in Texts().scrub(text)


def test_a_url_encoded_text_without_private_data_is_kept() -> None:
    assert Texts().scrub("progress%3A 50%25 of%20it") == "progress%3A 50%25 of%20it"


@pytest.mark.parametrize(
    "text",
    [
        '{"env": {"HF_TOKEN": "qwertyuiop12", "x": 1e}, "traceEvents": [EVENT]}',
        '{"traceEvents": [EVENT], "env": {"HF_TOKEN": "qwertyuiop12", "x": 1e}}',
    ],
)
def test_a_secret_beside_a_key_that_cannot_be_parsed(tmp_path: Path, text: str) -> None:
    event = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 9}'
    path = tmp_path / "a.json"
    path.write_text(text.replace("EVENT", event))
    assert "HF_TOKEN" in secrets_of(open_trace(str(path)))


def test_many_encodings_of_a_text_take_no_recursion() -> None:
    assert isinstance(Texts().scrub("a%" + "25" * 3000), str)


def test_a_trace_without_secrets_has_none() -> None:
    keys = {
        "traceName": "t.json",
        "metadata": {"cache_key": "abc1234567890abcdef", "tokens_per_s": 3},
    }
    assert find_secret_names(keys, ["aten::mm", "[memory]", "a basic kernel"]) == ()


@pytest.mark.parametrize(
    "version", ["v1.2", "2.1.0a0", "2.13.0+cu126", "2.1.0a0+git3f1c", "1.0.dev20261129"]
)
def test_version_is_no_secret(version: str) -> None:
    assert not is_secret("priv_key", version)


def test_secret_that_begins_like_a_version_is_one() -> None:
    assert is_secret("priv_key", "v8.5aG__GYXP_ii7")


def test_key_of_an_iam_is_a_secret_even_with_many_dashes() -> None:
    text = "x=ibm_cloud_iam_key: Uh-epSFZSSefWrnfVwJ5CzB5T--V-EqJ3zgFd-9Fq-dS"
    assert find_secret_names({"note": text}, ()) == ("ibm_cloud_iam_key",)


@pytest.mark.parametrize(
    "text",
    [
        'f("auth": "jcKH72KaffKdfSISKGyyAAMaggYFBiEukxeEBVE3")',
        '"auth": "LXyxLUuOXqBUMQBHHshbXoHtUFZMKC07373iqiGo"',
        'auth="eUTxpyqprFZFACSQAc74O6MYYlaECweyGObmdzzi"',
        "step --auth=caaXnBRXhxwSCTPQySGLOYaaJPIHOHgYJRT66F1p done",
    ],
)
def test_a_long_random_value_with_few_digits_is_a_secret(text: str) -> None:
    assert find_secret_names({"note": text}, ()) == ("auth",)
