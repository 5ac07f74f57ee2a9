//! Tests of each item of wrk's API.

use crate::common::{address, loaded, origin, respond, sorted, try_load, try_request};
use leadline_stats::Histogram;
use leadline_wrk_lua::{Origin, Summary};

#[test]
fn wrk_fields_come_from_the_command_line() {
    let mut origin = origin();
    origin.method = "PUT".to_owned();
    origin.body = Some(b"a\0b".to_vec());
    origin.headers = vec![("X-A".to_owned(), "1".to_owned()), ("X-A".to_owned(), "2".to_owned())];
    let source =
        "print(wrk.scheme, wrk.host, wrk.port, type(wrk.port), wrk.method, wrk.path, #wrk.body, wrk.headers['X-A'])
                  print(require('wrk') == wrk)";
    let load = try_load(source, &[], &origin, 0).unwrap();
    assert_eq!(load.printed(), "http\tshop.test\t8080\tstring\tPUT\t/list?page=1\t3\t2\ntrue\n");
    let bare = Origin { port: None, body: None, ..origin };
    let load = try_load("print(wrk.port, wrk.body, wrk.thread)", &[], &bare, 1).unwrap();
    assert_eq!(load.printed(), "nil\tnil\tnil\nnil\tnil\tnil\n");
}

#[test]
fn without_any_function_the_request_is_constant() {
    let load = loaded("");
    let request = load.threads[0].constant().unwrap();
    assert_eq!(request, b"GET /list?page=1 HTTP/1.1\r\nHost: shop.test:8080\r\n\r\n");
    assert!(!load.main.has_done());
}

#[test]
fn host_header_comes_from_the_url() {
    for (host, port, expected) in [
        ("shop.test", None, "Host: shop.test"),
        ("shop.test", Some(80), "Host: shop.test:80"),
        ("2001:db8::1", None, "Host: [2001:db8::1]"),
        ("2001:db8::1", Some(8080), "Host: [2001:db8::1]:8080"),
    ] {
        let origin = Origin { host: host.to_owned(), port, ..origin() };
        let load = try_load("", &[], &origin, 1).unwrap();
        let request = String::from_utf8(load.threads[0].constant().unwrap().to_vec()).unwrap();
        assert_eq!(sorted(&request)[1], expected);
    }
    let load = loaded("wrk.headers.Host = 'other'");
    assert!(load.threads[0].constant().unwrap().ends_with(b"\r\nHost: other\r\n\r\n"));
}

#[test]
fn format_uses_wrk_fields_for_nil_arguments() {
    let mut load = loaded(
        "local n = 0
         function request()
            n = n + 1
            if n == 2 then return wrk.format('POST', nil, nil, 'abc') end
            if n == 3 then return wrk.format(nil, '/x', { A = 1.5, B = true }) end
            if n == 4 then return wrk.format(nil, nil, { Host = 'mine' }, 12) end
            return wrk.format()
         end",
    );
    let next = sorted(&load.request());
    assert_eq!(next[..], ["POST /list?page=1 HTTP/1.1", "Content-Length: 3", "Host: shop.test:8080", "", "abc"]);
    let next = sorted(&load.request());
    assert_eq!(next[..4], ["GET /x HTTP/1.1", "A: 1.5", "B: true", "Host: shop.test:8080"]);
    let next = sorted(&load.request());
    assert_eq!(next[..], ["GET /list?page=1 HTTP/1.1", "Content-Length: 2", "Host: mine", "", "12"]);
    let next = load.request();
    assert!(!next.contains("Content-Length"), "the length field disappears with the body: {next}");
}

#[test]
fn format_writes_into_the_headers_table() {
    let load = loaded(
        "function init()
            local headers = { ['Content-Length'] = 'kept?' }
            wrk.format('GET', '/', headers)
            print(headers.Host, headers['Content-Length'])
            wrk.format('GET', '/', headers, 'four')
            print(type(headers['Content-Length']), headers['Content-Length'], wrk.headers['Content-Length'])
         end",
    );
    assert_eq!(load.printed(), "shop.test:8080\tnil\nnumber\t4\tnil\n");
}

#[test]
fn numbers_are_formatted_as_by_tostring() {
    let load = loaded(
        "function init()
            for _, n in ipairs({ 0, -0.0, 1, -7, 2^31, 999999999, 1e9, 1e15, 0.1, -2.5, 1/0, 0/0, 123456789012 }) do
               local request = wrk.format(nil, '/', { N = n, Host = 'h' })
               local said = request:match('N: ([^\\r]*)\\r\\n')
               if said ~= tostring(n) then print(n, said) end
            end
         end",
    );
    assert_eq!(load.printed(), "");
}

#[test]
fn many_header_fields_all_arrive() {
    let load = loaded(
        "function init()
            local headers = {}
            for i = 1, 100 do headers['X-' .. i] = i end
            local request, seen = wrk.format(nil, nil, headers), {}
            for i in request:gmatch('X%-(%d+): %1\\r\\n') do seen[#seen + 1] = i end
            print(#seen)
         end",
    );
    assert_eq!(load.printed(), "100\n");
}

#[test]
fn args_begin_with_the_url() {
    let source = "function init(args) print(args[0], args[1], args[2], #args) end";
    let load = try_load(source, &["--fast", "né"], &origin(), 1).unwrap();
    assert_eq!(load.printed(), "http://shop.test:8080/list?page=1\t--fast\tné\t2\n");
}

#[test]
fn setup_runs_in_main_once_per_thread_and_before_its_init() {
    let source = "local n = 0
                  function setup(thread) n = n + 1; print('setup', n, type(thread)); thread:set('id', n) end
                  function init() print('init', id, wrk.headers.Host) end";
    let load = try_load(source, &[], &origin(), 2).unwrap();
    let host = "shop.test:8080";
    assert_eq!(load.printed(), format!("setup\t1\tuserdata\ninit\t1\t{host}\nsetup\t2\tuserdata\ninit\t2\t{host}\n"));
}

#[test]
fn threads_use_the_first_reachable_address() {
    let load = loaded("function init() print(wrk.thread.addr, wrk.addrs) end");
    assert_eq!(load.threads[0].address(), Some(address("192.0.2.2:8080")));
    assert_eq!(load.printed(), "192.0.2.2:8080\tnil\n");
    let none = Origin { addresses: Vec::new(), ..origin() };
    let load = try_load("function init() print(wrk.thread.addr) end", &[], &none, 1).unwrap();
    assert_eq!((load.threads[0].address(), load.printed().as_str()), (None, "nil\n"));
    let one = Origin { addresses: vec![address("192.0.2.9:1")], ..origin() };
    let load = try_load("function setup() print(#wrk.addrs, wrk.addrs[1]) end", &[], &one, 1).unwrap();
    assert_eq!(load.threads[0].address(), Some(address("192.0.2.9:1")));
    assert_eq!(load.printed(), "1\t192.0.2.9:1\n");
    assert!(load.network.calls.lock().unwrap().is_empty(), "a single address is not tested before the load");
    let deaf = Origin { addresses: vec![address("192.0.2.8:1"), address("192.0.2.9:1")], ..origin() };
    let load = try_load("", &[], &deaf, 1).unwrap();
    assert_eq!(load.threads[0].address(), Some(address("192.0.2.8:1")), "the load counts its refusals");
}

#[test]
fn wrks_own_functions_can_be_replaced() {
    let source = "function wrk.resolve(host, service) wrk.addrs = wrk.lookup(host, service) print(host, service) end
                  local own = wrk.setup
                  function wrk.setup(thread) own(thread) thread:set('marked', true) end
                  function wrk.init(args) wrk.request = function() return wrk.format('GET', '/own') end end";
    let load = loaded(source);
    assert_eq!(load.threads[0].address(), Some(address("192.0.2.1:8080")));
    assert_eq!(load.threads[0].constant().unwrap(), b"GET /own HTTP/1.1\r\n\r\n");
    assert_eq!(load.printed(), "shop.test\t8080\n");
}

#[test]
fn another_host_can_be_resolved() {
    let own = Origin { host: "elsewhere.test".to_owned(), ..origin() };
    let source = "function setup(thread)
                     wrk.resolve('shop.test', 8080)
                     print(#wrk.addrs, wrk.addrs[1], wrk.addrs[2])
                     thread.addr = wrk.addrs[2]
                  end";
    let load = try_load(source, &[], &own, 1).unwrap();
    assert_eq!(load.printed(), "2\t192.0.2.2:8080\t2001:db8::1:8080\n");
    assert_eq!(load.threads[0].address(), Some(address("[2001:db8::1]:8080")));
}

#[test]
fn lookup_and_connect_use_the_network() {
    let source = "local found = wrk.lookup('shop.test', 80)
                  print(#found, tostring(found[3]), type(found[1]), wrk.connect(found[1]), wrk.connect(found[2]))
                  print(pcall(wrk.lookup, 'nowhere', 'http'))
                  print(pcall(wrk.connect, 'shop.test'))
                  print(select('#', pcall(wrk.lookup)))";
    let load = try_load(source, &[], &origin(), 0).unwrap();
    let lines = "3\t2001:db8::1:8080\tuserdata\tfalse\ttrue\n\
                 false\tunable to resolve nowhere:http: no such name\n\
                 false\tan address expected, got string\n2\n";
    assert_eq!(load.printed(), lines);
    assert_eq!(load.network.calls.lock().unwrap()[0], "lookup shop.test 80");
}

#[test]
fn request_is_looked_up_each_time() {
    let mut load = loaded(
        "function request() return wrk.format(nil, '/a') end
         function response(status)
            if status == 201 then request = function() return wrk.format(nil, '/b') end end
            if status == 202 then request = nil end
            if status == 203 then response = function(status) print('new', status) end end
         end",
    );
    let path = |request: String| request.split(' ').nth(1).unwrap().to_owned();
    for (status, expected) in
        [(200, "/a"), (201, "/b"), (202, "/list?page=1"), (203, "/list?page=1"), (204, "/list?page=1")]
    {
        respond(&mut load.threads[0], status, &[], b"").unwrap();
        assert_eq!(path(load.request()), expected);
    }
    assert_eq!(load.printed(), "new\t204\n");
}

#[test]
fn response_is_passed_unchanged() {
    let mut load = loaded(
        "local before
         function response(status, headers, body)
            local names = {}
            for name, value in pairs(headers) do names[#names + 1] = name .. '=' .. value end
            table.sort(names)
            print(status, table.concat(names, ' '), #body, body:sub(1, 4), headers == before)
            headers.Mine, before = 'x', headers
         end",
    );
    let thread = &mut load.threads[0];
    let long = vec![b'z'; 100_000];
    let mut answer = |headers: &[(&[u8], &[u8])], body: &[u8]| respond(thread, 200, headers, body).unwrap();
    answer(&[(b"A", b"1"), (b"b", b"2"), (b"A", b"3")], b"body");
    answer(&[(b"A", b"1"), (b"b", b"2"), (b"A", b"3")], b"body");
    answer(&[(b"A", b"1"), (b"b", b"\xff")], b"");
    answer(&[], &long);
    answer(&[(b"A", b"1"), (b"B", b"2"), (b"C", b"4")], &long);
    answer(&[(b"A", b"1"), (b"B", b"2"), (b"C", b"5")], b"body");
    let lines = [
        "200\tA=3 b=2\t4\tbody\tfalse",
        "200\tA=3 b=2\t4\tbody\tfalse",
        "200\tA=1 b=\u{fffd}\t0\t\tfalse",
        "200\t\t100000\tzzzz\tfalse",
        "200\tA=1 B=2 C=4\t100000\tzzzz\tfalse",
        "200\tA=1 B=2 C=5\t4\tbody\tfalse",
    ];
    assert_eq!(load.printed().lines().collect::<Vec<_>>(), lines);
}

#[test]
fn responses_with_many_fields_arrive_complete() {
    let mut load = loaded(
        "function response(_, headers)
            local sum, count = 0, 0
            for name, value in pairs(headers) do count, sum = count + 1, sum + tonumber(value) end
            print(count, sum)
         end",
    );
    for fields in [23usize, 24, 25, 60, 1] {
        let texts: Vec<(String, String)> = (1..=fields).map(|n| (format!("N{n}"), n.to_string())).collect();
        let headers: Vec<(&[u8], &[u8])> = texts.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
        respond(&mut load.threads[0], 200, &headers, b"").unwrap();
        assert_eq!(load.printed(), format!("{fields}\t{}\n", fields * (fields + 1) / 2));
    }
}

#[test]
fn delays_are_whole_milliseconds() {
    let mut load = loaded(
        "local answers, n = { 0, 7, 2.9, -3, '12', 'x', false, 0/0, math.huge }, 0
         function delay() n = n + 1 return answers[n] end",
    );
    let delays: Vec<u64> = (0..10).map(|_| load.threads[0].delay_ms().unwrap()).collect();
    assert_eq!(delays, [0, 7, 2, 0, 12, 0, 0, 0, u64::from(u32::MAX), 0]);
}

#[test]
fn thread_one_determines_the_kind_of_script() {
    let source = "local n = 0
                  function setup(thread) n = n + 1; thread:set('id', n) end
                  function init()
                     if id == 2 then request = function() return 'x' end; response = print end
                  end";
    let load = try_load(source, &[], &origin(), 2).unwrap();
    // As in wrk, `request` of thread 2 is called, but only once.
    assert_eq!(load.threads[1].constant(), Some(&b"x"[..]));
    assert!(!load.threads[1].has_response());
}

#[test]
fn a_stop_before_the_start_has_no_effect() {
    let load = loaded("function setup(t) t:stop() end function init() wrk.thread:stop() end");
    assert!(!load.threads[0].stopped());
}

#[test]
fn done_receives_the_summary_and_both_statistics() {
    let mut load = loaded(
        "function done(s, latency, requests)
            local e = s.errors
            print(s.duration, s.requests, s.bytes, e.connect, e.read, e.write, e.status, e.timeout)
            print(type(latency), latency.min, latency.max, latency.mean, latency.stdev, #latency)
            print(latency:percentile(50), latency:percentile(99.999), latency(1), latency.other)
            print(select('#', latency(2)), latency(3))
            print(requests.min, requests.max, #requests, requests(1))
            print(pcall(latency.percentile, latency, {}))
         end",
    );
    let (mut latency, mut requests) = (Histogram::new(), Histogram::new());
    for ns in [1_000, 1_400, 2_000, 2_000] {
        latency.record(ns);
    }
    requests.record(150);
    let summary = Summary {
        duration_us: 5_000_000,
        requests: 1 << 40,
        bytes: 9,
        connect: 1,
        read: 2,
        write: 3,
        status: 4,
        timeout: 5,
    };
    load.main.done(&summary, &latency, &requests).unwrap();
    let lines = [
        "5000000\t1099511627776\t9\t1\t2\t3\t4\t5",
        "userdata\t1\t2\t1.5\t0.57735026918963\t2",
        "2\t2\t1\tnil",
        "2\t0\t0",
        "150\t150\t1\t150\t1",
        "false\tpercentile: a number from 0 to 100 expected, got table",
    ];
    assert_eq!(load.printed().lines().collect::<Vec<_>>(), lines);
}

#[test]
fn printed_text_goes_to_the_output() {
    let load = try_load(
        "print() print(nil, nil) print(1, 'a', true)
         io.write('b', 2, '\\n') io.stdout:write('c\\n') io.stderr:write('d\\n') io.output():write('e\\n')
         print(io.type(io.stdout), io.type(io.stdin), io.type(1), tostring(io.stderr), type(io.stdout))
         print(io.read(), io.read('*a'), io.stdin:read('*l')) for line in io.lines() do print(line) end
         io.stdout:setvbuf('no') io.stdout:flush() io.flush()
         print(pcall(io.write, {}))
         print(pcall(io.stdout.write, io.stdout, nil))",
        &[],
        &origin(),
        0,
    )
    .unwrap();
    let lines = [
        "",
        "nil\tnil",
        "1\ta\ttrue",
        "b2",
        "c",
        "d",
        "e",
        "file\tfile\tnil\tfile (stderr)\tuserdata",
        "nil\t\tnil",
        "false\tbad argument #1 to 'write' (string expected, got table)",
        "false\tbad argument #1 to 'write' (string expected, got nil)",
    ];
    assert_eq!(load.printed().lines().collect::<Vec<_>>(), lines);
}

#[test]
fn files_and_commands_work() {
    let load = try_load(
        "local name = os.tmpname()
         local file = io.open(name, 'w') file:write('one\\ntwo\\n') file:close()
         for line in io.lines(name) do print(line) end
         io.input(name) print(io.read()) io.input():close() io.input(io.stdin)
         io.output(name) io.write('three') io.close() io.output(io.stdout)
         file = io.open(name) print(file:read('*a')) file:close() os.remove(name)
         local said = io.popen('read line; echo said') print(said:read('*a')) said:close()
         print(os.execute('exit 3') ~= 0, os.execute('cat') == 0, os.execute() ~= 0)",
        &[],
        &origin(),
        0,
    )
    .unwrap();
    assert_eq!(load.printed(), "one\ntwo\none\nthree\nsaid\n\ntrue\ttrue\ttrue\n");
}

#[test]
fn luajit_compiles() {
    let load = try_load("print((jit.status()), jit.version:match('^LuaJIT 2.1') ~= nil)", &[], &origin(), 0).unwrap();
    assert_eq!(load.printed(), "true\ttrue\n");
}

#[test]
fn every_standard_library_is_available() {
    let load = try_load(
        "local ffi, bit = require('ffi'), require('bit')
         ffi.cdef('typedef struct { int32_t a, b; } pair;')
         print(ffi.new('pair', { 1, 2 }).b, tostring(2ULL ^ 3ULL), bit.bxor(6, 3), debug.traceback('t'):match('^t') )
         for _, name in ipairs({ 'coroutine', 'table', 'io', 'os', 'string', 'bit', 'math', 'package', 'jit', 'debug' }) do
            if require(name) ~= _G[name] then print(name) end
         end
         print(wrk.format('GET', '/', { Host = 5ULL }):match('Host: [^\\r]*'))
         print(pcall(ffi.load, 'm'))
         print((select(2, pcall(require, 'cjson')):match('[^\\n]*static[^\\n]*')))",
        &[],
        &origin(),
        0,
    )
    .unwrap();
    let lines = [
        "2\t8ULL\t5\tt",
        "Host: 5ULL",
        "false\tcannot load m: the agent is one static program: no C library can be loaded",
        "\tthe agent is one static program: no C library can be loaded",
    ];
    assert_eq!(load.printed().lines().collect::<Vec<_>>(), lines);
}

#[test]
fn state_can_move_to_another_thread() {
    let mut load = try_load("function request() return wrk.format() end", &[], &origin(), 2).unwrap();
    let mut second = load.threads.pop().unwrap();
    let whole = std::thread::spawn(move || try_request(&mut second).unwrap()).join().unwrap();
    assert_eq!(whole, load.request());
}
