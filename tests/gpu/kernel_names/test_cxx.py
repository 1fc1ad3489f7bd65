"""Reading C++ names."""

import pytest

from fusetui.gpu.kernel_names.cxx import signature, split_args


@pytest.mark.parametrize(
    ("name", "scope", "base"),
    [
        ("void at::native::f<1>(int)", "at::native::", "f"),
        ("void (anonymous namespace)::g(int)", "(anonymous namespace)::", "g"),
        (
            "std::enable_if<((8)>(0))&&a::b<c>::exists, void>::type vllm::h<1>()",
            "vllm::",
            "h",
        ),
        ("_ZN2at6native4copyIfEEvv", "at::native::", "copy"),
        ("_Z3addPf", "", "add"),
        ("_ZN2ck12_GLOBAL__N_13fooE", "ck::(anonymous namespace)::", "foo"),
    ],
)
def test_signature_has_scope_and_base_name(name: str, scope: str, base: str) -> None:
    sign = signature(name)
    assert sign is not None
    assert (sign.scope, sign.base) == (scope, base)
    assert name[sign.start : sign.end] == base


def test_mangled_lengths_that_run_out() -> None:
    assert signature("_ZN99short") is None
    assert signature("_Z") is None


def test_template_arguments_are_split_at_outer_commas_only() -> None:
    text = "f<a<b, c>, int (d, e), {lambda(x<y)#1}, g>(z)"
    arguments, end = split_args(text, 2)
    assert [argument.text for argument in arguments] == [
        "a<b, c>",
        "int (d, e)",
        "{lambda(x<y)#1}",
        "g",
    ]
    for argument in arguments:
        assert text[argument.start : argument.end] == argument.text
    assert text[end:] == "(z)"
