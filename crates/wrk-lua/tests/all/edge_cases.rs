//! Tests of failing, hostile and unusual scripts. Each results in one clear line, and none in a panic.

use crate::common::{loaded, origin, refused, respond, try_load, try_request};
use leadline_stats::Histogram;
use leadline_wrk_lua::{ScriptError, Summary};

fn text(result: Result<(), ScriptError>) -> String {
    result.expect_err("no error").to_string()
}

#[test]
fn syntax_errors_name_their_line() {
    assert_eq!(refused("local a = 1\nlocal = 2"), "test.lua:2: '<name>' expected near '='");
    assert!(refused("function f(").starts_with("test.lua:1: "));
    assert!(refused("\u{1b}LJ\u{2}\u{0}").starts_with("test.lua"), "bytecode is refused");
}

#[test]
fn errors_name_their_callback() {
    assert_eq!(refused("\nerror('no')"), "test.lua:2: no");
    assert_eq!(
        refused("function setup()\n nothing.here = 1 end"),
        "test.lua:2: attempt to index global 'nothing' (a nil value) (in setup())"
    );
    assert_eq!(refused("function init()\n error('no') end"), "test.lua:2: no (in init())");
    assert_eq!(
        refused("function request()\n return 1 + {} end"),
        "test.lua:2: attempt to perform arithmetic on a table value (in request())"
    );
    let mut load =
        loaded("function response() error('r') end function delay() error('d') end function done() error('e') end");
    assert_eq!(text(respond(&mut load.threads[0], 200, &[], b"")), "test.lua:1: r (in response())");
    assert_eq!(load.threads[0].delay_ms().unwrap_err().to_string(), "test.lua:1: d (in delay())");
    let nothing = Histogram::new();
    assert_eq!(text(load.main.done(&Summary::default(), &nothing, &nothing)), "test.lua:1: e (in done())");
}

#[test]
fn an_error_in_a_called_function_is_located_in_the_script() {
    assert_eq!(
        refused("\n\nfunction request() local r = wrk.format('GET', '/', 'headers') return r end"),
        "test.lua:3: attempt to index local 'headers' (a string value) (in request())"
    );
    // A call in tail position leaves no trace of the caller.
    assert_eq!(
        refused("function request() return wrk.format('GET', '/', 'headers') end"),
        "test.lua: attempt to index local 'headers' (a string value) (in request())"
    );
    let refusal = refused("function init()\n string.rep() end");
    assert!(refusal.starts_with("test.lua:2: bad argument #1 to 'rep'"), "{refusal}");
    assert_eq!(refused("\nwrk.lookup('nowhere', 80)"), "test.lua:2: unable to resolve nowhere:80: no such name");
}

#[test]
fn errors_that_are_not_strings_become_one_line() {
    assert_eq!(refused("error({})").lines().count(), 1);
    assert_eq!(refused("error()").lines().count(), 1);
    assert_eq!(refused("error(nil)").lines().count(), 1);
    assert_eq!(refused("error('a\\n\\nb')"), "test.lua:1: a; b");
    let odd = "error(setmetatable({}, { __tostring = function() error('again') end }))";
    assert_eq!(refused(odd).lines().count(), 1);
    assert!(refused("local function f() return f() + 1 end f()").contains("stack overflow"));
}

#[test]
fn a_request_must_be_a_valid_request() {
    for (returned, problem) in [
        ("nil", "request() has to return a request as a string, got nil"),
        ("{}", "request() has to return a request as a string, got table"),
        ("true", "request() has to return a request as a string, got boolean"),
        ("''", "request() has to return a request as a string, got an empty string"),
        ("42", "request() has to return HTTP requests: the request is incomplete at line 1, column 3 of its string"),
        (
            "'GET / HTTP/1.1\\r\\nA\\r\\n\\r\\n'",
            "request() has to return HTTP requests: no header field at line 2, column 1 of its string",
        ),
    ] {
        assert_eq!(refused(&format!("function request() return {returned} end")), format!("test.lua: {problem}"));
    }
    let mut load = loaded("local n = 0 function request() n = n + 1 if n < 3 then return wrk.format() end end");
    load.request();
    let error = try_request(&mut load.threads[0]).unwrap_err().to_string();
    assert_eq!(error, "test.lua: request() has to return a request as a string, got nil");
    let mut load = loaded("local n = 0 function request() n = n + 1 return n == 1 and wrk.format() or n end");
    assert_eq!(load.request(), "2", "Lua converts a number to a string; only the first request is checked");
}

#[test]
fn os_exit_ends_the_load() {
    assert_eq!(refused("\nos.exit(1)"), "test.lua:2: the script called os.exit(1)");
    assert_eq!(refused("os.exit()"), "test.lua:1: the script called os.exit()");
    assert_eq!(refused("pcall(os.exit, true)"), "test.lua: the script called os.exit(true)");
    let mut load = loaded("function request() return wrk.format() end function response() pcall(os.exit, 2) end");
    assert_eq!(text(respond(&mut load.threads[0], 200, &[], b"")), "test.lua: the script called os.exit(2)");
    assert!(try_request(&mut load.threads[0]).is_err(), "the load stays stopped");
}

#[test]
fn a_response_may_change_the_next_request() {
    let mut load = loaded(
        "function request() return wrk.format() end
         function response(_, headers)
            wrk.headers = headers
            wrk.path, wrk.method, wrk.body = '/next', 'POST', 'b'
         end",
    );
    respond(&mut load.threads[0], 200, &[(b"A", b"1"), (b"Host", b"h")], b"").unwrap();
    let lines = crate::common::sorted(&load.request());
    assert_eq!(lines[..], ["POST /next HTTP/1.1", "A: 1", "Content-Length: 1", "Host: h", "", "b"]);
}

#[test]
fn constant_request_is_not_changed_by_a_response() {
    let mut load = loaded("function response() wrk.headers.A = 'b'; request = function() return 'x' end end");
    let before = load.threads[0].constant().unwrap().to_vec();
    respond(&mut load.threads[0], 200, &[], b"").unwrap();
    assert_eq!(load.threads[0].constant(), Some(&before[..]));
}

#[test]
fn values_are_copied_between_threads() {
    let source = "function setup(thread)
                     local shared = { 'x' }
                     thread:set('value', { 1, 2.5, true, name = 's\\0t', [false] = { deep = { er = 'e' } }, a = shared, b = shared })
                     thread:set('none', nil) thread:set(5, 'five')
                     print(thread:get('none'), thread:get('value').name == 's\\0t', thread:get('missing'), thread:get(5))
                     local back = thread:get('value')
                     print(#back, back[2], back[false].deep.er, back.a == back.b, back.a ~= shared)
                  end
                  function init() print(value[3], #value.name, value.a[1]) value = nil print(wrk.thread:get('value')) end";
    let load = try_load(source, &[], &origin(), 1).unwrap();
    assert_eq!(load.printed(), "nil\ttrue\tnil\tfive\n3\t2.5\te\ttrue\ttrue\ntrue\t3\tx\nnil\n");
}

#[test]
fn values_that_cannot_cross_threads_are_refused_by_name() {
    let setup = |body: &str| refused(&format!("function setup(thread)\n {body} end"));
    let place = "test.lua:2: ";
    let end = " (in setup())";
    assert_eq!(setup("thread:set('f', print)"), format!("{place}cannot transfer 'function' to thread{end}"));
    assert_eq!(setup("thread:set('f', { { thread } })"), format!("{place}cannot transfer 'userdata' to thread{end}"));
    assert_eq!(setup("thread:get('print')"), format!("{place}cannot transfer 'function' to thread{end}"));
    let circle = "local t = {} t.t = { t } thread:set('t', t)";
    assert_eq!(setup(circle), format!("{place}cannot transfer a table that contains itself to thread{end}"));
    let deep = "local t = {} for _ = 1, 5000 do t = { t } end thread:set('t', t)";
    assert_eq!(setup(deep), format!("{place}cannot transfer tables more than 100 deep to thread{end}"));
    assert_eq!(setup("thread.name = 'x'"), format!("{place}cannot set 'name' on thread{end}"));
    assert_eq!(setup("thread.addr = '1.2.3.4'"), format!("{place}an address expected, got string{end}"));
    assert_eq!(setup("thread.addr = nil"), format!("{place}an address expected, got nil{end}"));
    assert!(setup("thread:set()").starts_with(place));
}

#[test]
fn a_tostring_may_call_wrk_format() {
    let load = loaded(
        "function init()
            local odd = setmetatable({}, { __tostring = function() return #wrk.format('GET', '/inner') .. '' end })
            print((wrk.format('GET', odd, { Host = odd }, 'b'):gsub('\\r\\n', '|')))
         end",
    );
    // `GET /inner HTTP/1.1`, `Host: shop.test:8080` and the empty line are 45 bytes.
    let printed = load.printed();
    assert!(printed.starts_with("GET 45 HTTP/1.1|") && printed.contains("|Host: 45|"), "{printed}");
    assert!(printed.ends_with("||b\n"), "{printed}");
}

#[test]
fn table_that_occurs_twice_is_copied_once() {
    let source = "function setup(thread)
                     local t = {}
                     for _ = 1, 60 do t = { t, t } end
                     thread:set('t', t)
                  end
                  function init() local n = 0 while t do n, t = n + 1, t[1] end print(n) end";
    assert_eq!(try_load(source, &[], &origin(), 1).unwrap().printed(), "61\n");
}

#[test]
fn script_that_breaks_the_wrk_table_gets_an_error() {
    assert!(refused("wrk = nil").contains("wrk"));
    assert!(refused("wrk.headers = nil").contains("headers"));
    assert!(refused("wrk.format = nil").contains("format"));
    let load = loaded(
        "wrk = { resolve = function() end, setup = function() end, init = function() end,
                       request = function() return 'GET / HTTP/1.1\\r\\n\\r\\n' end }",
    );
    assert_eq!(load.threads[0].constant(), Some(&b"GET / HTTP/1.1\r\n\r\n"[..]));
    // The API keeps its own copies of the globals that it uses.
    let load = loaded("pairs, next, type, tostring, string, table, error = nil");
    assert!(load.threads[0].constant().is_some());
}
