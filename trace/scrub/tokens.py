"""Tokens of known forms in a text, whatever it is: the warning names them, `scrub` removes them.

Both ask `tokens_in`, so nothing that the warning knows stays. What has no form of its own, such as
a password or 40 hexadecimal digits, is known only by the name before it (see secrets.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from fusetui.trace.scrub.secrets import compiled, is_trivial

ALPHABETS = {"A": "A-Za-z0-9", "B": "A-Za-z0-9+/=_-", "D": r"\w.=-", "H": "0-9a-fA-F",
             "L": "a-z0-9", "U": "A-Z0-9", "W": r"\w-"}  # fmt: skip

BEGIN = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[abfnrtv0])|(?<=\\u[0-9a-fA-F]{4})|(?<=\\x[0-9a-fA-F]{2})"
    r"|(?<=%[0-9a-fA-F]{2})|(?<=\[[0-9]m)|(?<=\[[0-9]{2}m))"
)
"""Where a token may begin: at a word, also after an escape of JSON, of a URL or of a terminal."""

ISSUED = """
a Hugging Face token : hf_ api_org_ : A30
a GitHub token : ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ : W20
a GitLab token : glpat- gldt- glft- glsoat- glrt- glcbt- glimt- glptt- glagent- gloas- glffct- : D16
a GitLab token : GR1348941 : W16
a GitLab token : _gitlab_session= : A32
an API key : nvapi- gsk_ xai- pplx- csk- tvly- lsv2_pt_ lsv2_sk_ pcsk_ jina_ rpa_ wandb_v1_ : W20
an API key : sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ whsec_ : A10
an API key : r8_ : A30
a package index token : pypi-AgE : W20
a package index token : npm_ CLOJARS_ rubygems_ : A30
a Docker token : dckr_pat_ dckr_oat_ : W16
an AWS key : AKIA ASIA ABIA ACCA A3T : U16
an AWS key : ABSK : B100
a Slack token : xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp- : D10
a Google key : AIza ya29. GOCSPX- : W20
a Databricks token : dapi dkea dose : H32
a Vault token : hvs. hvb. hvr. : W20
a DigitalOcean token : doo_v1_ dop_v1_ dor_v1_ : H60
a Linear token : lin_api_ lin_oauth_ : A30
a Tailscale key : tskey- : W16
an age key : AGE-SECRET-KEY-1 AGE-PLUGIN- : U40
a 1Password token : ops_eyJ : B60
an Adobe secret : p8e- : A32
an Alibaba key : LTAI : A16
an Atlassian token : ATATT3 ATCTT3 ATBB : D20
an Artifactory token : AKC : A10
a ClickHouse key : 4b1d : A38
a Doppler token : dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit. : A40
a Duffel token : duffel_test_ duffel_live_ : D40
a Dynatrace token : dt0c01. dt0s01. : D60
an EasyPost token : EZAK EZTK : A50
a Facebook token : EAAM EAAC : A90
a Flutterwave key : FLWSECK_TEST- FLWPUBK_TEST- FLWSECK- : W12
a Fly.io token : fo1_ : W40
a Fly.io token : fm1a_ fm1r_ fm2_ : B90
a Frame.io token : fio-u- : D60
a Grafana token : glc_ glsa_ : B32
an Infracost token : ico- : A32
an Intra42 secret : s-s4t2ud- s-s4t2af- : H60
a Defined Networking key : dnkey- : D60
a Lob key : live_pub_ test_pub_ live_ test_ : H31
a Mailgun key : key- pubkey- : H32
a New Relic key : NRJS- NRII- NRAK- : W19
an Octopus key : API- : U26
an OpenShift token : sha256~ : W43
a Plaid token : access-sandbox- access-development- access-production- : W36
a PlanetScale token : pscale_tkn_ pscale_oauth_ pscale_pw_ : D30
a Postman key : PMAK- : W50
a Prefect token : pnu_ pnb_ : A36
a Pulumi token : pul- : H40
a ReadMe key : rdme_ : A60
a Scalingo token : tk-us- : W40
a Sendinblue key : xkeysib- xsmtpsib- : W60
a Sentry token : sntryu_ sntrys_ : B40
a SettleMint token : sm_aat_ sm_pat_ sm_sat_ : A16
a Shippo token : shippo_live_ shippo_test_ : H40
a Shopify token : shpat_ shpca_ shppa_ shpss_ : H32
a Sourcegraph token : sgp_ : W40
a Square token : EAAA sq0atp- sq0csp- : W22
a Twilio key : AC SK : L32
a Twilio key : SK : H32
a Typeform token : tfp_ : D50
a Heroku key : HRKU-AA : W50
a Notion token : ntn_ secret_ : A40
a Figma token : figd_ : W40
a Supabase token : sbp_ : H40
a CircleCI token : CCIPAT_ : W20
a Yandex key : AQVN : W35
"""
"""Who issues it, how it begins, and what follows: an alphabet and the fewest characters of it, as
the issuers document them and as scanners of repositories know them."""


class Form(NamedTuple):
    """A form of its own; its last group, or all of it, is the secret; none if that is empty."""

    kind: str
    mark: str  # in lower case; part of every text of this form
    pattern: str


FORMS = (
    Form("a Hugging Face token", "hf_", r"hf_(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{16,}+"),
    Form(
        "a private key",
        "private key",
        r"(?:-{1,5} ?)?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?(?:(?!-----END)[\s\S])*+"
        r"(?:-----END[A-Z0-9 ]{0,40}-{0,5})?",
    ),
    Form("a private key", "putty-user-key", r"PuTTY-User-Key-File-\d[\s\S]*+"),
    Form("a password in a URL", "://", r"(?<=://)[^\s/@:\"']*+:([^\s/@\"']++)@"),
    Form(
        "a bearer token",
        "authorization",
        r"(?i:authorization)[\\\"'\]]{0,4}+\s{0,2}+[:=]\s{0,2}+[\\\"']{0,4}+"
        r"(?:[A-Za-z-]{3,12}\s{1,4}+)?(?=[^\s\"']{0,99}[\dA-Z=])([\w.~+/=:-]{8,}+)",
    ),
    Form("a bearer token", "earer ", r"(?i:bearer)\s{1,4}+(?=[\w.~+/=-]{0,99}\d)([\w.~+/=-]{8,}+)"),
    Form("a bearer token", "asic ", r"(?i:basic)\s{1,4}+(?=[\w.~+/=-]{0,99}\d)([\w.~+/=-]{12,}+)"),
    Form(
        "a password of curl",
        "curl ",
        r"curl\s[^\n]{0,400}?(?<=\s)(?:-u|--user)[ =]{0,4}+[\"']?[^\s:\"']{0,80}:([^\s\"']{3,}+)",
    ),
    Form("a signed URL", "sig", r"(?i)[?&](?:x-[a-z]{3,4}-)?sig(?:nature)?=([\w%+/=-]{16,}+)"),
    Form("an API key", "login ", r"(?<=login )([0-9a-f]{40})(?!\w)"),
    Form(
        "an AWS key",
        "aws",
        r"(?i)aws[^\n\"']{0,30}(?:key|pwd|pw|pass|token)[^\n\"']{0,20}[\\\"']{1,4}"
        r"(?:[:=, ]{1,3}[\\\"']{1,4})?([0-9a-z/+]{40})[\\\"']",
    ),
    Form("a JSON web token", "eyj", r"(eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w=-]*+)?)|eyJ[\w-]*+()"),
    Form("a JSON web token", "zxlk", r"ZXlK[\w+/-]{40,}+"),
    Form("an API key", "sk-", r"sk-(?=[\w-]{0,99}\d)(?=[\w-]{0,99}[A-Za-z])[\w-]{16,}+"),
    Form("a SendGrid key", "sg.", r"SG\.[\w=.-]{32,}+"),
    Form(
        "an Artifactory token",
        "ap",
        r"AP[\dA-F](?=[A-Z\d]{0,60}[a-z])(?=[a-z\d]{0,60}[A-Z])"
        r"(?:(?=[A-Za-z]{0,5}\d)|(?=[A-Za-z]{0,60}\d)(?=\w{20}))[A-Za-z0-9]{8,}+(?![\w-])",
    ),
    Form(
        "a Telegram token",
        ":",
        r"(?<!\d)\d{5,16}:(?:A[\w-]{32,}+|(?=[\w-]{0,33}\d)(?=[\w-]{0,33}[A-Z])(?=[\w-]{0,33}[a-z])"
        r"[\w-]{35}(?![\w-]))",
    ),
    Form("a Discord token", ".", r"[MNO][\w-]{23,25}\.[\w-]{6}\.(?=[\w-]{0,26}\d)[\w-]{27,}+"),
    Form("a Vault token", "s.", r"s\.(?=[a-zA-Z]{0,23}\d)[A-Za-z0-9]{24}(?![\w.])"),
    Form("a Mailchimp key", "-us", r"[0-9a-z]{32}-us[0-9]{1,2}"),
    Form("a Mailgun key", "mailgun", r"(?i)mailgun[^\n]{0,30}?([0-9a-h]{32}(?:-[0-9a-h]{8}){2})"),
    Form("an Azure secret", "q~", r"[\w~.]{3}\dQ~[\w~.-]{31,34}"),
    Form("a Terraform token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,}+"),
    Form("a MaxMind key", "_mmk", r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    Form("a Harness token", "at.", r"[ps]at\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    Form("an Airtable token", "pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    Form(
        "an Authress key",
        ".acc",
        r"(?:sc|ext|scauth|authress)_[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][\w-]{10,32}\.[\w+/=-]{30,}+",
    ),
    Form("a Cloudflare key", "v1.0-", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}+"),
    Form("a Facebook token", "|", r"\d{15,16}[|%][\w-]{27,40}"),
    Form("a Mapbox token", "k.", r"[ps]k\.(?:[a-z0-9]{60}|eyJ[\w-]{20,200})\.[\w-]{22}"),
    Form("a Yandex token", "t1.", r"t1\.[\w-]{1,400}={0,2}\.[\w-]{86}={0,2}"),
    Form("a Grafana key", "eyjrijoi", r"eyJrIjoi[A-Za-z0-9]{60,}+={0,3}"),
    Form(
        "a webhook",
        "hooks.slack.com/",
        r"(?i)hooks\.slack\.com/(?:services|workflows|triggers)/[\w+/-]{20,}+",
    ),
    Form(
        "a webhook", "webhook.office.com/", r"(?i)[\w.-]{1,80}\.webhook\.office\.com/[\w@/-]{40,}+"
    ),
)
"""Those that take more than a beginning to be known."""

SEPARATORS = str.maketrans(dict.fromkeys("_-.~:/=+%|,;()[]{}<>\"'`\\\x1b@#$&?!*^", " "))
ESCAPE = r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|\\[abfnrtv0]|%[0-9a-fA-F]{2}|\[[0-9]{1,3}m"


def tokens_in(text: str) -> Iterator[tuple[int, int, str]]:
    """Begin, end and kind of each token, from left to right; none overlaps another."""
    found = [
        (*match.span(match.lastindex or 0), kind)
        for kind, pattern in _patterns(text)
        for match in pattern.finditer(text)
        if not match[0][0].isalnum() or compiled(BEGIN).match(text, match.start())
    ]
    done = -1
    for begin, end, kind in sorted(found, key=lambda token: (token[0], -token[1])):
        if done <= begin < end and not is_trivial(text[begin:end]):
            yield begin, end, kind
            done = end


def kinds_in(text: str) -> Iterator[str]:
    """The kinds of known tokens in a text, in words: "a GitHub token"."""
    return (kind for _, _, kind in tokens_in(text))


def _patterns(text: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """The few patterns of which at least the beginning occurs in the text."""
    issued = _issued()
    for head in issued.keys() & _heads(text):
        for kind, prefix, body in issued[head]:
            if prefix in text:
                yield kind, compiled(f"{re.escape(prefix)}{body}")
    lower = text.lower()
    for form in FORMS:
        if form.mark in lower:
            yield form.kind, compiled(form.pattern)


def _heads(text: str) -> set[str]:
    """The words of a text, and the beginnings of long ones."""
    if "\\" in text or "%" in text or "[" in text:
        text = compiled(ESCAPE).sub(" ", text)
    words = set(text.translate(SEPARATORS).split())
    for word in [*words]:
        if len(word) > 4:
            words.add(word[:4])
            if len(word) > 9:
                words.add(word[:3])
                words.add(word[:2])
    return words


@cache
def _issued() -> Mapping[str, list[tuple[str, str, str]]]:
    """First word of a prefix, or four letters of it -> kind, prefix and pattern of what follows."""
    rows: dict[str, list[tuple[str, str, str]]] = {}
    for line in ISSUED.strip().splitlines():
        kind, prefixes, body = line.split(" : ")
        alphabet = ALPHABETS[body[0]]
        no_word = rf"(?=[{alphabet}]{{0,60}}[\dA-Z])"
        for prefix in prefixes.split():
            word = prefix.translate(SEPARATORS).split()[0]
            head = word if len(word) < len(prefix) else word[:4]
            rows.setdefault(head, []).append(
                (kind, prefix, rf"{no_word}[{alphabet}]{{{body[1:]},}}+")
            )
    return rows
