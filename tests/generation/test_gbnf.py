"""GBNF as llama.cpp reads it: what a grammar allows, and what is refused in clear words."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from mlxcel.core.byte_vocab import EOS, VOCAB_SIZE
from mlxcel.core.errors import BadField
from mlxcel.core.output import OutputFormat, OutputKind
from mlxcel.generation.gbnf import GbnfError, gbnf_to_lark
from mlxcel.generation.structured import LIMITS, compiled
from mlxcel.text.bytes import byte_tokenizer

BYTES = LLTokenizer(byte_tokenizer().to_str(), n_vocab=VOCAB_SIZE, eos_token=EOS)


def grammar(source: str) -> str:
    return compiled(OutputFormat(kind=OutputKind.GBNF, source=source, param="grammar"))


def accepts(source: str, text: str) -> bool:
    matcher = LLMatcher(BYTES, grammar(source), log_level=0, limits=LIMITS)
    said = list(text.encode())
    return matcher.try_consume_tokens(said) == len(said) and matcher.is_accepting()


FORMS = [
    pytest.param("root ::= [a-c]+", ["abc"], ["d", ""], id="class"),
    pytest.param("root ::= [^a]", ["b", "\n", "é"], ["a"], id="negclass"),
    pytest.param(
        r'root ::= [^"\\\x7F\x00-\x1F]+', ["ab é"], ['"', "\\", "\x7f", "\n"], id="class-escapes"
    ),
    pytest.param(r"root ::= [\[\]]+", ["[]", "]["], ["a"], id="class-bracket"),
    pytest.param("root ::= [ab-]+", ["a-b"], ["c"], id="class-dash-end"),
    pytest.param("root ::= [-+*/]", ["-", "+", "*", "/"], ["."], id="class-dash-first"),
    pytest.param("root ::= [a^]", ["^", "a"], ["b"], id="class-caret-end"),
    pytest.param("root ::= [&&a]", ["&", "a"], ["b"], id="class-amp"),
    pytest.param("root ::= [a~~b]", ["~", "a", "b"], ["c"], id="class-tilde"),
    pytest.param("root ::= [a-z--c]", ["-", "a"], ["|"], id="class-minus2"),
    pytest.param(r"root ::= [\u0041-\u005A]", ["A", "Z"], ["a"], id="class-u"),
    pytest.param(r"root ::= [\U0001F600-\U0001F64F]", ["😀"], ["a"], id="class-U"),
    pytest.param("root ::= [ぁ-ゟ]+", ["あい"], ["a"], id="class-rawuni"),
    pytest.param(r"root ::= [ \t\n]{0,20}", ["", " \t\n"], ["a"], id="class-space"),
    pytest.param('root ::= ["]', ['"'], ["a"], id="class-quote"),
    pytest.param("root ::= [/]", ["/"], ["a"], id="class-slash"),
    pytest.param(r"root ::= [\\/]", ["/", "\\"], ["a"], id="class-escslash"),
    pytest.param("root ::= [$.()*]", ["$", ".", "("], ["a"], id="class-dollar"),
    pytest.param('root ::= "a"{3}', ["aaa"], ["aa", "aaaa"], id="rep-exact"),
    pytest.param('root ::= "a"{2,}', ["aa", "aaaaa"], ["a"], id="rep-min"),
    pytest.param('root ::= "a"{2,3}', ["aa", "aaa"], ["a", "aaaa"], id="rep-range"),
    pytest.param('root ::= "a"{0,3}', ["", "aaa"], ["aaaa"], id="rep-max"),
    pytest.param('root ::= "b" "a"{0}', ["b"], ["ba"], id="rep-0"),
    pytest.param('root ::= ("ab" | "c"){2}', ["abc", "cc"], ["ab"], id="rep-group"),
    pytest.param('root ::= x{2}\nx ::= [0-9] y\ny ::= "z"', ["1z2z"], ["1z"], id="rep-rule"),
    pytest.param('root ::= "a"?+', ["", "aa"], ["b"], id="rep-two"),
    pytest.param('# hello\nroot ::= "a" # tail\n# end\n', ["a"], ["b"], id="comment"),
    pytest.param('root ::= ( # c\n "a" # d\n | "b" )', ["a", "b"], ["c"], id="comment-mid"),
    pytest.param('root ::= "[" (root ("," root)*)? "]"', ["[]", "[[],[]]"], ["["], id="nested"),
    pytest.param('root ::= "a" |\n  "b"', ["a", "b"], ["c"], id="alt-newline"),
    pytest.param('root ::= (\n "a"\n | "b"\n)', ["a", "b"], ["c"], id="alt-leading-newline"),
    pytest.param('root ::=\n  "a"', ["a"], ["b"], id="leading-newline"),
    pytest.param('root ::= "a" | ', ["a", ""], ["b"], id="empty-alt"),
    pytest.param('root ::= "" "a"', ["a"], ["b"], id="empty-lit"),
    pytest.param('root ::= my-rule\nmy-rule ::= "a"', ["a"], ["b"], id="dash-names"),
    pytest.param('root ::= my_rule\nmy_rule ::= "a"', ["a"], ["b"], id="underscore"),
    pytest.param('root ::= a-b a_b\na-b ::= "1"\na_b ::= "2"', ["12"], ["11"], id="clash-names"),
    pytest.param(
        'root ::= fooBar foobar\nfooBar ::= "1"\nfoobar ::= "2"', ["12"], ["11"], id="case-names"
    ),
    pytest.param(
        'root ::= Foo FOO\nFoo ::= "1" root?\nFOO ::= "2"', ["12"], ["11"], id="upper-names"
    ),
    pytest.param('root ::= start\nstart ::= "1"', ["1"], ["2"], id="start-name"),
    pytest.param('root ::= 0a\n0a ::= "1"', ["1"], ["2"], id="digit-names"),
    pytest.param('root ::= -a\n-a ::= "1"', ["1"], ["2"], id="lead-dash"),
    pytest.param('root ::= "a" root | "b"', ["aab"], ["aa"], id="root-ref"),
    pytest.param(r'root ::= "\"\\\n\t\r\x41"', ['"\\\n\t\rA'], ["a"], id="lit-escapes"),
    pytest.param(r'root ::= "\[\]"', ["[]"], ["a"], id="lit-bracket"),
    pytest.param(r'root ::= "\u0041\u00e9\u4e2d"', ["Aé中"], ["a"], id="lit-u"),
    pytest.param(r'root ::= "\U0001F600"', ["😀"], ["a"], id="lit-U"),
    pytest.param(r'root ::= "\u0000"', ["\x00"], ["a"], id="lit-u0"),
    pytest.param(r'root ::= "\x00"', ["\x00"], ["a"], id="lit-x00"),
    pytest.param(r'root ::= "\xe9"', ["é"], ["a"], id="lit-xFF"),
    pytest.param('root ::= "a/b"', ["a/b"], ["a"], id="lit-slash"),
    pytest.param('root ::= "a\nb"', ["a\nb"], ["a"], id="lit-rawnl"),
    pytest.param('root ::= "a\tb"', ["a\tb"], ["a"], id="lit-rawtab"),
    pytest.param('root ::= "ü😀"', ["ü😀"], ["a"], id="lit-uni"),
    pytest.param("root ::= .", ["a", "\n", "é"], ["", "ab"], id="dot"),
    pytest.param('root ::= "<" .* ">"', ["<a\nb>"], ["<"], id="dotstar"),
    pytest.param('root ::= "a" x\r\nx ::= "b"\r\n', ["ab"], ["a"], id="crlf"),
    pytest.param('root ::= root "a" | "a"', ["aa"], ["b"], id="left-rec"),
    pytest.param('  root ::= "a"  ', ["a"], ["b"], id="trailing-space"),
    pytest.param('root ::= import\nimport ::= "a"', ["a"], ["b"], id="keyword-import"),
]


@pytest.mark.parametrize(("source", "good", "bad"), FORMS)
def test_what_a_grammar_allows(source: str, good: list[str], bad: list[str]) -> None:
    assert {text: accepts(source, text) for text in good} == dict.fromkeys(good, True)
    assert {text: accepts(source, text) for text in bad} == dict.fromkeys(bad, False)


JSON = r"""root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
"""
CHESS = r"""root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
"""
ARITHMETIC = r"""root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"""


@pytest.mark.parametrize(
    ("source", "good", "bad"),
    [
        pytest.param(JSON, '{"a": [1, 2.5e+1], "b": "x\\n"}', '{"a"}', id="json"),
        pytest.param(CHESS, "1. e4 e5\n2. Nf3 Nc6\n", "1. e4", id="chess"),
        pytest.param(ARITHMETIC, "a+1=2\n\n(b)=3\n", "+", id="arithmetic"),
    ],
)
def test_grammars_as_people_write_them(source: str, good: str, bad: str) -> None:
    """In the last one a blank may be followed by one: a lexer would never see the end."""
    assert accepts(source, good)
    assert not accepts(source, bad)


def chain(end: int, form: str) -> str:
    rules = [f"r{n} ::= {form.format(f'r{n + 1}')}" for n in range(end)]
    return "\n".join(["root ::= r0", *rules, f'r{end} ::= "a" '])


# What the engine reads by recursion, until its process dies; what it reads for minutes.
CHAIN = chain(8000, "{}")
GROUPS = chain(400, '("a" ("b" ("c" ({}))))')
MANY = [f"r{n}" for n in range(299)] + [
    "r299" + "".join(f"\nr{n} ::= [a-z] root" for n in range(300))
]
TANGLED = "the rule root is used 3000 times by what it consists of; at most 64"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param("root ::= x", "there is no rule named x", id="undefined"),
        pytest.param('foo ::= "a"', "there is no rule named root", id="noroot"),
        pytest.param("", "there is no rule named root", id="empty"),
        pytest.param('root ::= <think> "a"', "tokens by name or id", id="token"),
        pytest.param('root ::= <[1000]> "a"', "tokens by name or id", id="tokenid"),
        pytest.param('root ::= !<think>* "a"', "tokens by name or id", id="nottoken"),
        pytest.param('root ::= "a', 'never closed by "', id="unclosed"),
        pytest.param("root ::= [a", "never closed by ]", id="unclosed-class"),
        pytest.param('root ::= ("a"', "expected )", id="unclosed-group"),
        pytest.param('root ::= "a" ; x', "expected a new line", id="junk"),
        pytest.param('root ::= "a"{3,2}', "repeated at least 3 and at most 2", id="badrep"),
        pytest.param("root ::= [z-a]", "the range 'z' to 'a' is empty", id="badrange"),
        pytest.param("root ::= []", "a class without a character", id="empty-class"),
        pytest.param("root ::= " + "(" * 5000 + '"a"' + ")" * 5000, "nested deeper", id="deep"),
        pytest.param('root ::= "a"' + "*" * 200_000, "counted more than 8 times", id="counts"),
        pytest.param(CHAIN, "rules nested 8002 levels deep; at most 1000", id="chain"),
        pytest.param(CHAIN + "| root", "rules nested 8002 levels deep", id="circle"),
        pytest.param(GROUPS, "rules nested 2002 levels deep", id="deep-groups"),
        pytest.param("root ::= a" + " | root" * 3000 + '\na ::= "a"', TANGLED, id="tangled"),
        pytest.param("root ::= " + " | ".join(MANY), "used 300 times", id="tangled-rules"),
        pytest.param(r'root ::= "\q"', r"unknown escape \q", id="escape"),
        pytest.param(r'root ::= "\x4"', r"\x wants 2 hexadecimal digits", id="short-escape"),
        pytest.param(r'root ::= "\uD800"', r"\uD800 is no character", id="surrogate"),
        pytest.param(r'root ::= "\U00110000"', r"\U00110000 is no character", id="beyond"),
        pytest.param('root ::= "a"{x}', "expected {m}, {m,} or {m,n}", id="count"),
        pytest.param('root ::= "a"{100001}', "repeated more than 100000 times", id="large-count"),
        pytest.param("root = x", "expected ::=", id="equals"),
        pytest.param("::= x", "expected the name of a rule", id="no-name"),
        pytest.param('root ::= "a" | x\n  | "b"', "expected the name of a rule", id="alone"),
    ],
)
def test_what_cannot_be_read_is_refused_in_clear_words(source: str, words: str) -> None:
    with pytest.raises(BadField) as error:
        grammar(source)
    assert error.value.param == "grammar"
    assert error.value.message.startswith("grammar: not a GBNF grammar: ")
    assert words in error.value.message


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [chain(998, "{}"), chain(248, '("a" ("b" ("c" {})))')],
    ids=["chain", "groups"],
)
def test_what_is_as_deep_as_it_may_be_is_compiled(source: str) -> None:
    """On a thread, as the prompts are: its stack is no larger than that of the program."""
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(grammar, source).result()


@pytest.mark.parametrize("source", ["root ::= root", "root ::= a\na ::= b\nb ::= a"])
def test_a_grammar_without_an_end_is_refused(source: str) -> None:
    with pytest.raises(BadField, match="without an end"):
        grammar(source)


def test_of_two_rules_with_one_name_the_last_counts() -> None:
    source = 'root ::= x\nx ::= "a"\nx ::= "b"'
    assert (accepts(source, "a"), accepts(source, "b")) == (False, True)


def test_a_place_is_told() -> None:
    with pytest.raises(GbnfError, match="at line 3, before '; x'"):
        gbnf_to_lark('# first\nroot ::= x\nx ::= "a" ; x')


def test_the_largest_source_is_read_quickly() -> None:
    source = 'root ::= "' + "a" * 50_000 + '" ' + "( [a-z] )" * 5_000
    began_s = time.perf_counter()
    gbnf_to_lark(source)
    assert time.perf_counter() - began_s < 3


ITEMS = st.recursive(
    st.one_of(
        st.text("ab\n", max_size=3).map(lambda text: (quoted(text), re.escape(text))),
        st.sampled_from([("[ab]", "[ab]"), ("[^a]", "[^a]"), (".", "(?s:.)")]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda some: joined(some, " ", "")),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: joined(some, " | ", "|")),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}"])).map(
            lambda pair: (f"({pair[0][0]}){pair[1]}", f"(?:{pair[0][1]}){pair[1]}")
        ),
    ),
    max_leaves=6,
)
"""Pairs of GBNF and of an expression that mean the same."""


def quoted(text: str) -> str:
    return '"' + text.replace("\n", "\\n") + '"'


def joined(some: list[tuple[str, str]], in_gbnf: str, in_regex: str) -> tuple[str, str]:
    gbnf, regex = zip(*some, strict=True)
    return f"({in_gbnf.join(gbnf)})", f"(?:{in_regex.join(regex)})"


@given(pair=ITEMS, texts=st.lists(st.text("ab\n", max_size=6), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_a_grammar_means_what_the_expression_means(pair: tuple[str, str], texts: list[str]) -> None:
    source, expression = f"root ::= {pair[0]}", re.compile(pair[1])
    try:
        want = {text: expression.fullmatch(text) is not None for text in texts}
        got = {text: accepts(source, text) for text in texts}
    except BadField:  # nothing but the empty text
        assert not any(expression.fullmatch(text) for text in texts if text)
        return
    assert got == want
