"""Secrets of every kind that scanners of repositories know, drawn at random."""

from __future__ import annotations

import string
from collections.abc import Callable
from random import Random
from typing import NamedTuple

HEX, LOWER, UPPER = "0123456789abcdef", string.ascii_lowercase, string.ascii_uppercase
SMALL, LARGE, ALNUM = (
    LOWER + string.digits,
    UPPER + string.digits,
    LOWER + UPPER + string.digits,
)
WORD, BASE64 = ALNUM + "_-", ALNUM + "+/"
BECH32 = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"


class Secret(NamedTuple):
    """One secret: the text that it stands in, and the part of it that must not be
    left."""

    kind: str
    text: str
    private: str


def _rows(text: str) -> dict[str, str]:
    """Names, each with the form that follows it."""
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


ISSUED = _rows("""
    adobe p8e-{a32}  age AGE-SECRET-KEY-1{q58}  alibaba LTAI{a20}  1password ops_eyJ{b260}
    atlassian ATATT3{w186}  bitbucket ATBB{n32}  authress sc_{a12}.{a4}.acc-{a16}.{n40}
    aws AKIA{u16}  aws-2 ASIA{u16}  aws-3 A3T{u17}  bedrock ABSK{b110}  azure {n3}8Q~{n34}
    clickhouse 4b1d{n38}  clojars CLOJARS_{a60}  cloudflare v1.0-{h24}-{h146}
    databricks dapi{h32}  digitalocean dop_v1_{h64}  digitalocean-2 doo_v1_{h64}
    digitalocean-3 dor_v1_{h64}  doppler dp.pt.{n43}  duffel duffel_live_{n43}
    dynatrace dt0c01.{u24}.{u64}  easypost EZAK{n54}  facebook EAAM{n120}
    facebook-app {d15}|{n30}  flutterwave FLWSECK_TEST-{h32}-X  fly fo1_{w43}  fly-2 fm2_{b120}
    frame.io fio-u-{n64}  google AIza{w35}  google-2 ya29.{w60}  google-3 GOCSPX-{w28}
    github ghp_{n36}  github-2 gho_{n36}  github-3 ghs_{n36}  github-4 github_pat_{n22}_{n59}
    gitlab glpat-{w20}  gitlab-2 glcbt-{h2}_{w20}  gitlab-3 gldt-{w20}  gitlab-4 glptt-{h40}
    gitlab-5 glagent-{w50}  gitlab-6 gloas-{w64}  gitlab-7 GR1348941{w20}
    gitlab-8 glrt-t1_{w27}.{a2}{a7}  gitlab-9 _gitlab_session={a32}  grafana glc_{b40}
    grafana-2 glsa_{n32}_{h8}  harness pat.{w22}.{n24}.{n20}  terraform {n14}.atlasv1.{n64}
    hugging-face hf_{l34}  hugging-face-2 api_org_{l34}  infracost ico-{n32}
    intra42 s-s4t2ud-{h64}  linear lin_api_{n40}  lob live_{h35}  mailchimp {h32}-us12
    mailgun key-{h32}  mapbox pk.{a60}.{a22}  maxmind {n6}_{n29}_mmk  new-relic NRAK-{u27}
    new-relic-2 NRII-{a32}  npm npm_{n36}  octopus API-{u26}  openai sk-proj-{n20}T3BlbkFJ{n20}
    openai-2 sk-{n20}T3BlbkFJ{n20}  anthropic sk-ant-api03-{w93}AA  openshift sha256~{w43}
    plaid access-production-{h8}-{h4}-{h4}-{h4}-{h12}  planetscale pscale_tkn_{n43}
    planetscale-2 pscale_pw_{n43}  postman PMAK-{h24}-{h34}  prefect pnu_{n36}  pulumi pul-{h40}
    pypi pypi-AgEIcHlwaS5vcmc{w90}  readme rdme_{a70}  rubygems rubygems_{h48}
    scalingo tk-us-{w48}  sendgrid SG.{w22}.{w43}  sendinblue xkeysib-{h64}-{a16}
    sentry sntryu_{h64}  settlemint sm_pat_{n16}  shippo shippo_live_{h40}  shopify shpat_{h32}
    slack xoxb-{d12}-{d12}-{n24}  slack-2 xapp-1-{u11}-{d13}-{h64}
    slack-3 xoxp-{d12}-{d12}-{d12}-{h32}  sourcegraph sgp_{h16}_{h40}  square sq0csp-{w43}
    square-2 EAAA{w60}  stripe sk_live_{n24}  stripe-2 rk_test_{n24}  telegram {d9}:AA{w33}
    telegram-2 {d9}:{n35}  twilio SK{h32}  twilio-2 AC{h32}  typeform tfp_{w59}  vault hvs.{w96}
    vault-2 hvb.{w140}  vault-3 s.{n24}  yandex AQVN{w36}  docker dckr_pat_{w27}
    nvidia nvapi-{w64}  groq gsk_{n52}  replicate r8_{n37}
    tailscale tskey-auth-{n12}CNTRL-{n32}  notion ntn_{n46}  artifactory AKCp{n69}
    artifactory-2 APB{n40}  discord M{n23}.{n6}.{n27}
    jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ{n22}.{w43}
""")
"""How their issuers document them: {h32} is 32 hexadecimal digits, and so on."""

DRAWN = {"h": HEX, "a": SMALL, "u": LARGE, "n": ALNUM, "w": WORD, "b": BASE64, "d": "0123456789",
         "l": LOWER + UPPER, "q": BECH32}  # fmt: skip
NAMES = (
    *("password", "DB_PASSWORD", "PGPASSWORD", "DBPASSWORD", "SSHPASS", "db_pass", "userpassword"),
    *("MYSQL_PWD", "api_key", "api-key", "apiKey", "auth_key", "service_key", "account_key"),
    *("db_key", "database_key", "priv_key", "private_key", "client_key", "database_pass"),
    *("key_pass", "passwd", "secret", "my_secret", "client_secret", "password_secure"),
    *("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_PAT", "AUTH", "REDIS_AUTH"),
    *("accessToken", "OPENAI_API_KEY", "db.passwd", "passphrase", "SMTP_PASS", "contraseña"),
)  # fmt: skip
LONG_NAMES = _rows("""
    heroku {h8}-{h4}-{h4}-{h4}-{h12}  squarespace {h8}-{h4}-{h4}-{h4}-{h12}
    adafruit {a32}  airtable {a17}  algolia {a32}  asana {a32}  jira {n24}  beamer b_{a44}
    bittrex {a32}  cloudflare {a40}  codecov {a32}  cohere {n40}  coinbase {a64}
    confluent {a64}  contentful {a43}  datadog {a40}  discord {h64}  droneci {a32}
    dropbox {a15}  etsy {a24}  facebook {h32}  fastly {a32}  finicity {h32}  flickr {a32}
    freshbooks {a64}  gitter {a40}  intercom {a60}  artifactory {a73}  kraken {n80}
    kucoin {h24}  launchdarkly {a40}  linkedin {a16}  mattermost {a26}  messagebird {a25}
    netlify {a42}  new_relic {a64}  nytimes {a32}  okta 00{w40}  rapidapi {a50}  sendbird {h40}
    sentry {h64}  sonar_login {a40}  sumo {a64}  travis {a22}  twitch {a30}  twitter {a45}
    zendesk {a40}  softlayer_api_key {a64}  cloudant_password {h64}  ibm_cloud_iam_key {w44}
    cos_hmac_secret_access_key {h48}  AccountKey {b86}==  meraki {h40}  token {n44}  auth {n40}
""")
"""Names of services whose keys have no form of their own, and how long these are."""

SIGNS = ("{n}={v}", '{n}="{v}"', "{n} = '{v}'", '{n}: "{v}"', '"{n}": "{v}"', "'{n}': '{v}'",
         "export {n}={v}", '{n} := "{v}"', '{n} => "{v}"', '{n} == "{v}"', "--{n} {v}", "--{n}={v}",
         "os.environ['{n}'] = '{v}'", "{n}: {v}")  # fmt: skip
OTHERS: dict[str, Callable[[str], str]] = {
    "URL": lambda value: f"postgresql+psycopg2://ada:{value}@db/x",
    "URL without a user": lambda value: f"redis://:{value}@db:6379/0",
    "bearer": lambda value: f"Authorization: Bearer {value}",
    "basic": lambda value: f"Authorization: Basic {value}",
    "webhook": lambda value: f"https://hooks.slack.com/services/T0AB/B0AB/{value}",
    "header": lambda value: f"X-Api-Key: {value}",
    "no sign": lambda value: f"the password is {value}",
    "netrc": lambda value: f"machine x login y password {value}",
    "private key": lambda value: (
        f"-----BEGIN RSA PRIVATE KEY-----\n{value}\n-----END RSA PRIVATE KEY-----"
    ),
    "key of PGP": lambda value: (
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{value}\n-----END PGP PRIVATE KEY BLOCK-----"
    ),
    "key of OpenSSH": lambda value: f"-----BEGIN OPENSSH PRIVATE KEY-----\\n{value}\\n",
    "key of PuTTY": lambda value: (
        f"PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 1\n{value}"
    ),
    "curl": lambda value: f"curl -u ada:{value} x",
    "SAS": lambda value: f"https://x.blob.core.windows.net/c?sv=1&sig={value}",
    "AWS in words": lambda value: f'aws key "{(value * 8)[:40]}"',
}
PLACES: dict[str, Callable[[str], str]] = {
    "alone": lambda text: text,
    "between words": lambda text: f"step {text} done",
    "after an escape": lambda text: f"line\\n{text}",
    "on a line": lambda text: f"line\n{text}\nline",
    "in quotes": lambda text: f"'{text}'" if '"' in text else f'"{text}"',
    "in brackets": lambda text: f"f({text})",
    "of a terminal": lambda text: f"\x1b[31m{text}\x1b[0m",
    "in a tuple": lambda text: f"('a', {text}, 'b')",
    "after a sign": lambda text: f"x={text}",
}
PRINTABLE = ALNUM + "!#$%^*_+.?~"


def drawn(form: str, rnd: Random) -> str:
    """A text of this form: `dapi{h32}`."""
    parts = form.split("{")
    found = [parts[0]]
    for part in parts[1:]:
        what, _, rest = part.partition("}")
        found += [_characters(DRAWN[what[0]], int(what[1:]), rnd), rest]
    return "".join(found)


def _characters(alphabet: str, count: int, rnd: Random) -> str:
    """Begins and ends with a letter or digit; has a digit, as nearly all that are so
    long."""
    ends = sorted(set(alphabet) & set(ALNUM))
    text = rnd.choices(alphabet, k=count)
    text[0], text[-1] = rnd.choice(ends), rnd.choice(ends)
    if count > 12 and "7" in alphabet and not any(char.isdigit() for char in text):
        text[count // 2] = "7"
    return "".join(text)


def password(rnd: Random) -> str:
    """Of 8 to 24 characters, with a digit and a letter, as people have them."""
    middle = "".join(rnd.choices(PRINTABLE, k=rnd.randint(4, 20)))
    return f"{rnd.choice(LOWER)}{rnd.choice('23456789')}{middle}{rnd.choice(LOWER)}7"


def secret(rnd: Random) -> Secret:
    share = rnd.random()
    if share < 0.5:
        kind = rnd.choice(list(ISSUED))
        token = drawn(ISSUED[kind], rnd)
        return Secret(kind, token, token)
    sign = rnd.choice(SIGNS)
    if share < 0.7:
        name, value = rnd.choice(NAMES), password(rnd)
        return Secret(f"{name} {sign}", sign.format(n=name, v=value), value)
    if share < 0.85:
        name = rnd.choice(list(LONG_NAMES))
        value = drawn(LONG_NAMES[name], rnd)
        return Secret(f"{name} {sign}", sign.format(n=name, v=value), value)
    kind, value = rnd.choice(list(OTHERS)), drawn("a2b{n24}Zc3", rnd)
    return Secret(kind, OTHERS[kind](value), value)
