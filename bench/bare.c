// The cheapest possible generator over epoll: wait, receive, send again. Reads no answer and keeps no figures, so
// what it takes is the kernel's price of a request. Refuses answers that do not come in one piece.
// bare PORT SECONDS CONNECTIONS
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "common.h"

enum { BATCH = 64, ROOM = 4096 };

static int connected(int port) {
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof server) < 0) fail("connect");
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0) fail("setsockopt");
    return fd;
}

int main(int count, char **given) {
    if (count != 4) {
        fputs("usage: bare PORT SECONDS CONNECTIONS\n", stderr);
        return 2;
    }
    char request[128], answer[ROOM];
    int port = atoi(given[1]), connections = atoi(given[3]), poll = epoll_create1(0);
    int length = snprintf(request, sizeof request, "GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", port);
    for (int index = 0; index < connections; index++) {
        int fd = connected(port);
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) < 0) fail("epoll_ctl");
        if (send(fd, request, (size_t)length, MSG_NOSIGNAL) != length) fail("send");
    }
    double begin_s = now_s(), end_s = begin_s + atof(given[2]), at_s = begin_s;
    long answers = 0, whole = 0;
    while (at_s < end_s) {
        struct epoll_event events[BATCH];
        int ready = epoll_wait(poll, events, BATCH, 100);
        for (int index = 0; index < ready; index++) {
            long received = recv(events[index].data.fd, answer, sizeof answer, MSG_DONTWAIT);
            if (whole == 0) whole = received;
            if (received != whole || received <= 0) fail("an answer that is not the first one's size");
            answers++;
        }
        // All at once: neighbouring sends find the kernel's code and data in the cache.
        for (int index = 0; index < ready; index++)
            if (send(events[index].data.fd, request, (size_t)length, MSG_NOSIGNAL) != length) fail("send");
        at_s = now_s();
    }
    printf("%ld answers in %.6f s\n", answers, at_s - begin_s);
    return 0;
}
