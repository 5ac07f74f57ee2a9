// The reference of the packet engine: four instructions that send each page of the kernel out of an interface, and two at
// its far end that drop it. No header is written, nothing is counted but the calls.
//   frames OUT IN BATCH SECONDS
// prints frames and seconds. Both interfaces are a veth pair's, in this network namespace.
#include <linux/bpf.h>
#include <net/if.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common.h"

#define FRAMES_PER_CALL 65536

static long bpf(int command, union bpf_attr *attributes) {
    return syscall(SYS_bpf, command, attributes, sizeof *attributes);
}

static int load(struct bpf_insn *instructions, unsigned count) {
    union bpf_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.prog_type = BPF_PROG_TYPE_XDP;
    attributes.insns = (unsigned long)instructions;
    attributes.insn_cnt = count;
    attributes.license = (unsigned long)"GPL";
    attributes.expected_attach_type = BPF_XDP;
    return (int)bpf(BPF_PROG_LOAD, &attributes);
}

static int attach(int program, const char *interface, unsigned flags) {
    union bpf_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.link_create.prog_fd = program;
    attributes.link_create.target_ifindex = if_nametoindex(interface);
    attributes.link_create.attach_type = BPF_XDP;
    attributes.link_create.flags = flags;
    return (int)bpf(BPF_LINK_CREATE, &attributes);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    struct bpf_insn send[] = {
            {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 1, .imm = (int)if_nametoindex(argv[1])},
            {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 2, .imm = 0},
            {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect},
            {.code = BPF_JMP | BPF_EXIT},
    };
    struct bpf_insn drop[] = {
            {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = XDP_DROP},
            {.code = BPF_JMP | BPF_EXIT},
    };
    int sender = load(send, 4), dropper = load(drop, 2);
    // The loopback keeps the sender in the kernel's dispatcher, as each call would otherwise wait for it.
    if (sender < 0 || dropper < 0 || attach(dropper, argv[2], 1U << 2) < 0 || attach(sender, "lo", 1U << 1) < 0) {
        fail("bpf");
    }
    if (atoi(argv[3]) == 0) {
        // Only the program that drops, for frames of others.
        puts("dropping");
        fflush(stdout);
        sleep(atoi(argv[4]));
        return 0;
    }
    unsigned char frame[60] = {0};
    double begin = now_s(), end = begin + atof(argv[4]);
    unsigned long frames = 0;
    while (now_s() < end) {
        union bpf_attr attributes;
        memset(&attributes, 0, sizeof attributes);
        attributes.test.prog_fd = sender;
        attributes.test.data_in = (unsigned long)frame;
        attributes.test.data_size_in = sizeof frame;
        attributes.test.repeat = FRAMES_PER_CALL;
        attributes.test.flags = 1U << 1;
        attributes.test.batch_size = atoi(argv[3]);
        if (bpf(BPF_PROG_TEST_RUN, &attributes) < 0) {
            fail("run");
        }
        frames += FRAMES_PER_CALL;
    }
    printf("%lu frames in %.6f s\n", frames, now_s() - begin);
    return 0;
}
