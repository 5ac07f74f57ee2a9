// TCP ping-pong over epoll, one byte each way, one at a time: wait, receive, send again. Keeps no figures but the count,
// so that what it takes is the kernel's price of a transaction.
// pingpong serve ADDRESS PORT
// pingpong ask ADDRESS PORT SECONDS
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"

static struct sockaddr_in address(char **given) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(given[3]))};
    if (inet_pton(AF_INET, given[2], &at.sin_addr) != 1) fail("inet_pton");
    return at;
}

static int watched(int fd) {
    int one = 1, poll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) < 0) fail("setsockopt");
    if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) < 0) fail("epoll");
    return poll;
}

// Answers each byte until `end_s`, or until the other end closes; returns how many.
static long exchange(int fd, int poll, double end_s) {
    char byte[16];
    for (long count = 0;;) {
        struct epoll_event event;
        if (epoll_wait(poll, &event, 1, 100) < 1) continue;
        long received = recv(fd, byte, sizeof byte, MSG_DONTWAIT);
        if (received == 0) return count;
        if (received != 1) fail("recv");
        count++;
        if (end_s > 0 && now_s() >= end_s) return count;
        if (send(fd, byte, 1, MSG_NOSIGNAL) != 1) fail("send");
    }
}

int main(int count, char **given) {
    if (count == 4 && strcmp(given[1], "serve") == 0) {
        struct sockaddr_in at = address(given);
        int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(listener, (struct sockaddr *)&at, sizeof at) < 0 || listen(listener, 8) < 0) fail("listen");
        puts("ready");
        fflush(stdout);
        for (;;) {
            int fd = accept(listener, NULL, NULL);
            if (fd < 0) fail("accept");
            int poll = watched(fd);
            exchange(fd, poll, 0);
            close(poll);
            close(fd);
        }
    }
    if (count != 5 || strcmp(given[1], "ask") != 0) {
        fputs("usage: pingpong serve ADDRESS PORT | ask ADDRESS PORT SECONDS\n", stderr);
        return 2;
    }
    struct sockaddr_in at = address(given);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) < 0) fail("connect");
    int poll = watched(fd);
    double begin_s = now_s();
    if (send(fd, "x", 1, MSG_NOSIGNAL) != 1) fail("send");
    long transactions = exchange(fd, poll, begin_s + atof(given[4]));
    printf("%ld transactions in %.6f s\n", transactions, now_s() - begin_s);
    return 0;
}
