// session.yaml for k6.
import http from "k6/http";
import { check } from "k6";

export const options = {
  vus: 50, duration: `${__ENV.SECONDS}s`, summaryTrendStats: ["avg"], discardResponseBodies: false,
};

export default function () {
  const login = http.get(`${__ENV.URL}session`);
  check(login, { "status is 200": (response) => response.status === 200 });
  const headers = { Authorization: `Bearer ${login.json("token")}` };
  for (let page = 0; page < 10; page++) {
    const response = http.get(`${__ENV.URL}page`, { headers });
    check(response, { "status is 200": (response) => response.status === 200 });
  }
}

export function handleSummary(data) {
  return { stdout: `${data.metrics.http_reqs.values.count} requests, ${data.metrics.checks.values.fails} failed\n` };
}
