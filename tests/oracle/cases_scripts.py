"""Scripts of test plans, in the languages that JMeter has: each sets two variables, which the request after it sends."""

# ruff: noqa: E501 (a script is one line)

from __future__ import annotations

from oracle_elements import Case, case, get, if_, post, script, while_

from jmx_elements import element, raw_body, variables

_JSON = '{"id": 5, "list": [{"name": "p"}, {"name": "q"}]}'
_GROOVY = (
    'vars.put("a", String.valueOf(${n}+1)); vars.put("b", "${n}"+1)',
    'vars.put("a", (vars.get("n").toInteger() + 1).toString())\nvars.put("b", "" + (${n} + ${n}))',
    'vars.put("a", "x" + vars.get("undef"))\nvars.put("b", "y" + props.get("undefp"))',
    'vars.put("gone","1"); vars.remove("gone"); vars.put("a","1"); vars.put("b", "" + (vars.get("gone") == null))',
    'vars.put("a", vars.get("undef") ?: "def"); vars.put("b", vars.get("n") ?: "def")',
    'vars.put("a", new String("abc")); vars.put("b", new String(vars.get("n").getBytes("UTF-8"), "UTF-8"))',
    'vars.put("a", "x,y,z".split(",")[1]); def p = vars.get("csv").split("\\\\|"); vars.put("b", p[2])',
    'vars.put("a", "abcdef".take(3)); vars.put("b", "abcdef".substring(2,4))',
    'vars.put("a", "" + (7.9 as int)); vars.put("b", "" + ((vars.get("n") as int) + 1))',
    'vars.put("a", "" + ((int)(vars.get("n").toInteger() / 2))); vars.put("b", "" + (9 / 3))',
    'def result\nif (vars.get("n") == "1") {\n result = "one"\n} else if (vars.get("n") == "7") {\n result = "seven"\n} else { result = "other" }\nvars.put("a", result)\nvars.put("b", result + "!")',
    'String r = "none"\nif (${n} > 5) { r = "big" }\nvars.put("a", r)\nvars.put("b", r.toUpperCase())',
    'def l = ["a","b","c"]\nvars.put("a", l[1])\nvars.put("b", "" + l.size())',
    'def l = ["a","b","c"]\nint i = 2\nvars.put("a", l[i])\nvars.put("b", l.get(0))',
    'vars.put("a", String.format("%05d", 42)); vars.put("b", String.format("%s-%s", "x", vars.get("n")))',
    'vars.put("a", Integer.toString(5)); vars.put("b", Long.toString(12L))',
    'vars.put("a", "user:pw".bytes.encodeBase64().toString()); vars.put("b", Base64.getEncoder().encodeToString("user:pw".getBytes("UTF-8")))',
    'import org.apache.commons.codec.binary.Base64\nbyte[] enc = Base64.encodeBase64("a:b".getBytes())\nvars.put("a", new String(enc))\nvars.put("b", new String(Base64.decodeBase64("YTpi")))',
    'def who = "bob"\nvars.put("a", "hi $who")\nvars.put("b", "hi ${who}")',
    'int i = 3\ni++\ni += 4\nvars.put("a", i.toString())\nvars.put("b", "$i")',
    'vars.put("a", new Date().format("yyyy")); vars.put("b", new java.text.SimpleDateFormat("yyyy").format(new Date()))',
    'import groovy.json.JsonSlurper\ndef j = new JsonSlurper().parseText(vars.get("json"))\nvars.put("a", j.id.toString())\nvars.put("b", j.list[1].name)',
    'props.put("pu", vars.get("undef")); vars.put("a","after"); vars.put("b","x")',
    'props.put("pk", "v&apos;"); vars.put("a", props.get("pk")); vars.put("b", props.getProperty("pk"))',
    'if (vars.get("undef") == "") { vars.put("a","empty") } else { vars.put("a","null") }\nvars.put("b", vars.get("undef") == null ? "n" : "s")',
    'vars.put("a", ${n} > 5 ? "big" : "small"); vars.put("b", vars.get("n").equals("7") ? "y" : "n")',
    'vars.put("a", "" + vars.get("csv").contains("y")); vars.put("b", "" + vars.get("csv").length())',
    'vars.put("a", " x ".trim() + "."); vars.put("b", "a-b".replace("-", "+"))',
    'vars.put("a", "" + (${n} % 4)); vars.put("b", "" + (vars.get("n").toInteger() * 2 - 1))',
    'vars.put("a", "" + Math.max(3, ${n})); vars.put("b", "" + Math.abs(-4))',
)
_OTHERS = (
    (
        "beanshell",
        'int n = Integer.parseInt(vars.get("n"));\nvars.put("a", String.valueOf(n / 2));\nvars.put("b", String.valueOf(7 / 2));',
    ),
    ("beanshell", 'String s = "x" + vars.get("undef");\nvars.put("a", s);\nvars.put("b", "${n}" + 1);'),
    (
        "beanshell",
        'String t = vars.get("n");\nif (t.equals("7")) { vars.put("a", "seven"); } else { vars.put("a", "other"); }\nvars.put("b", t + t);',
    ),
    ("beanshell", 'vars.put("a", new String("q")); int i = 5; i++; vars.put("b", "" + i);'),
    ("jexl3", 'vars.put("a", "" + (7 / 2)); vars.put("b", "" + (${n} + 1))'),
    ("jexl2", 'vars.put("a", "" + (7 / 2)); vars.put("b", "" + (${n} + 1))'),
)


def _sent(number: int, language: str, text: str) -> str:
    """A request that sends what its script sets."""
    kind = "BeanShellPreProcessor" if language == "beanshell" else "JSR223PreProcessor"
    before = element(kind, "script", scriptLanguage=language, script=text)
    clears = script("JSR223PostProcessor", "vars.remove('a'); vars.remove('b')")
    return post(f"/{number}", before, clears, inner=raw_body("${a}|${b}"))


_GIVEN = variables(n="7", csv="x|y|z", json=_JSON, i="0")
CASES: tuple[Case, ...] = (
    case("scripts-in-groovy", _GIVEN, *(_sent(number, "groovy", text) for number, text in enumerate(_GROOVY))),
    case("scripts-in-others", _GIVEN, *(_sent(number, *one) for number, one in enumerate(_OTHERS))),
    case(
        "conditions-of-scripts",
        _GIVEN,
        if_("${n} + 1 == 8", get("/a"), expression=False),
        if_('"${n}" == "7"', get("/b"), expression=False),
        if_("${__groovy(${n}+1 == 8)}", get("/c")),
        if_('${__jexl3(${n}+1 == 8 && "${csv}" != "")}', get("/d")),
        if_("${__javaScript(${n}/2 == 3.5)}", get("/e")),
        if_("${__jexl3(${n}/2 == 3)}", get("/f")),
        if_('"${undef}" == "\\${undef}"', get("/g"), expression=False),
        while_(
            "${__javaScript(${i} + 1 < 4)}",
            get("/w/${i}", script("JSR223PostProcessor", 'vars.put("i", (vars.get("i").toInteger()+1).toString())')),
        ),
        get("/f/${__groovy(${n}+1)}/${__javaScript(${n}+1)}/${__jexl3(${n}+1)}/${__BeanShell(${n}+1)}"),
        get('/g/${__groovy("${n}"+1)}/${__javaScript("${n}"+1)}/${__javaScript(7/2)}'),
    ),
)
