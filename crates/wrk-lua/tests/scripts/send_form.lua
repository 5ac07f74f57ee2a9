-- Only fields are set, so the request is constant.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/x-www-form-urlencoded"
wrk.body = "name=lead&depth=40"
