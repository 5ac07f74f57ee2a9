/* Watches the UDP datagrams of one payload length that arrive at an interface, by the kernel's timestamps: how many,
 * in what time, and the most of them in any millisecond: bursts INTERFACE LENGTH. Says "ready", then ends with its input.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"

enum { WINDOW_NS = 1000000, MOST_IN_WINDOW = 1 << 16, BLOCK_BYTES = 1 << 20, BLOCKS = 16, HEADER_BYTES = 256 };

static uint64_t recent[MOST_IN_WINDOW];
static uint64_t count, oldest, most, first_ns, last_ns;

/* The window ends with this datagram. */
static void add(uint64_t at_ns) {
    if (count == 0)
        first_ns = at_ns;
    last_ns = at_ns;
    recent[count % MOST_IN_WINDOW] = at_ns;
    count++;
    while (at_ns - recent[oldest % MOST_IN_WINDOW] >= WINDOW_NS || count - oldest > MOST_IN_WINDOW)
        oldest++;
    if (count - oldest > most)
        most = count - oldest;
}

/* Frames of the ring are truncated by the filter: only their lengths and times count. */
static void attach(int ring, unsigned payload) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 5),
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 23),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 3),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 38),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, payload + 8, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 64),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (setsockopt(ring, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program))
        fail("SO_ATTACH_FILTER");
}

static uint8_t *map_ring(int ring) {
    int version = TPACKET_V3;
    struct tpacket_req3 request = {
        .tp_block_size = BLOCK_BYTES,
        .tp_block_nr = BLOCKS,
        .tp_frame_size = HEADER_BYTES,
        .tp_frame_nr = BLOCK_BYTES / HEADER_BYTES * BLOCKS,
        .tp_retire_blk_tov = 50,
    };
    if (setsockopt(ring, SOL_PACKET, PACKET_VERSION, &version, sizeof version) ||
        setsockopt(ring, SOL_PACKET, PACKET_RX_RING, &request, sizeof request))
        fail("PACKET_RX_RING");
    void *mapped = mmap(NULL, (size_t)BLOCK_BYTES * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED, ring, 0);
    if (mapped == MAP_FAILED)
        fail("mmap");
    return mapped;
}

/* Reads the next block if it is complete; says whether it was. */
static int read_block(uint8_t *start) {
    struct tpacket_block_desc *block = (struct tpacket_block_desc *)start;
    if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
        return 0;
    uint8_t *frame = start + block->hdr.bh1.offset_to_first_pkt;
    for (unsigned left = block->hdr.bh1.num_pkts; left > 0; left--) {
        struct tpacket3_hdr *header = (struct tpacket3_hdr *)frame;
        add((uint64_t)header->tp_sec * 1000000000u + header->tp_nsec);
        frame += header->tp_next_offset;
    }
    __atomic_store_n(&block->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int ring = socket(AF_PACKET, SOCK_RAW, 0);
    if (ring < 0)
        fail("AF_PACKET");
    attach(ring, (unsigned)atoi(argv[2]));
    uint8_t *blocks = map_ring(ring);
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = (int)if_nametoindex(argv[1])};
    if (bind(ring, (struct sockaddr *)&address, sizeof address))
        fail("bind");
    puts("ready");
    fflush(stdout);
    unsigned next = 0;
    for (int ending = 0;;) {
        while (read_block(blocks + (size_t)next * BLOCK_BYTES))
            next = (next + 1) % BLOCKS;
        if (ending)
            break;
        struct pollfd ready[] = {{ring, POLLIN, 0}, {0, POLLIN, 0}};
        poll(ready, 2, -1);
        if (ready[1].revents) {
            ending = 1;
            usleep(100000); /* the last block is handed over by then */
        }
    }
    struct tpacket_stats_v3 stats = {0};
    socklen_t length = sizeof stats;
    getsockopt(ring, SOL_PACKET, PACKET_STATISTICS, &stats, &length);
    printf("%llu datagrams in %.9f s, most %llu, %u unseen\n", (unsigned long long)count, (double)(last_ns - first_ns) / 1e9,
           (unsigned long long)most, stats.tp_drops);
    return 0;
}
