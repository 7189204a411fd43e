/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for kata-agent in the test guest: it answers the calls that run a container as the
 * real one of Kata 4.1.0 was recorded to, and really runs it.
 *
 *   kata-agent LISTEN [OPTION]...
 *
 *   vsock:PORT        where it listens; on a KVM guest, where the real one does (1024)
 *   tcp:PORT          the same for an emulated guest, on eth0 with the address 10.0.2.15
 *   without-sysfs     has none in its mount namespace, as if the guest's kernel had none
 *   slow-answers      takes three seconds to hand on what a drive's container says
 *   without-cgroups   refuses to create containers, as after its source the agent does if the
 *                     guest's kernel has no cgroups
 *
 * Where the kernel has them and they are not mounted, the real one creates a container, and panics
 * in StartContainer and RemoveContainer: neither is answered. So here.
 *
 * Like the agent of the stock images, whose policy it copies, it denies GetVolumeStats and
 * ResizeVolume and allows the rest. Each call is printed on standard output, with how it ended.
 *
 * One thread for each connection and each call. A call that waits ends with its connection; the
 * containers live on. Fields and answers: Kata's agent.proto, src/agent/src/rpc.rs.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/vm_sockets.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "container.h"
#include "files.h"
#include "wire.h"

enum {
    HEADER_BYTES = 10,
    FRAME_BYTES = 4 * 1024 * 1024,
    READ_BYTES = 65536,
    ANSWER_BYTES = READ_BYTES + 1024,
    SLOW_MS = 3000,
    SERIAL_CHARS = 20,
    REQUEST = 1,
    RESPONSE = 2,
};

/* google.rpc.Code */
enum { OK = 0, INVALID_ARGUMENT = 3, NOT_FOUND = 5, UNIMPLEMENTED = 12, INTERNAL = 13 };

struct connection {
    int fd;
    int gone; /* eventfd, readable once the other side is */
    unsigned users;
    pthread_mutex_t lock; /* of writing and users */
};

struct call {
    struct connection *connection;
    uint32_t stream;
    uint8_t *frame;
    struct bytes payload;
    char method[64];
};

struct answer {
    int code;
    char text[TEXT_BYTES];
    uint8_t payload[READ_BYTES + 16];
    size_t length;
    bool none; /* nobody is there to hear it, or it never comes */
};

static struct container_options options;
static bool slow_answers, without_sysfs;
static struct container *containers[CONTAINERS];
static pthread_mutex_t containers_lock = PTHREAD_MUTEX_INITIALIZER;

static void refuse(struct answer *answer, int code, const char *text)
{
    answer->code = code;
    (void)snprintf(answer->text, sizeof(answer->text), "%s", text);
}

/* ---- the calls */

/* container_id, exec_id and a number (of the signal, or of bytes), as most requests have them. */
struct process_request {
    char id[ID_BYTES], process[ID_BYTES];
    uint64_t number;
};

static struct process_request parse_process_request(struct bytes payload)
{
    struct process_request request = {0};
    struct field field;

    while (wire_next(&payload, &field)) {
        if (field.number == 1)
            wire_text(field.bytes, request.id, sizeof(request.id));
        if (field.number == 2)
            wire_text(field.bytes, request.process, sizeof(request.process));
        if (field.number == 3)
            request.number = field.value;
    }
    return request;
}

static struct container **find_slot(const char *id)
{
    for (int i = 0; i < CONTAINERS; i++) {
        if (containers[i] && strcmp(containers[i]->id, id) == 0)
            return &containers[i];
    }
    return NULL;
}

static struct container *find(const char *id)
{
    struct container **slot;

    pthread_mutex_lock(&containers_lock);
    slot = find_slot(id);
    pthread_mutex_unlock(&containers_lock);
    return slot ? *slot : NULL;
}

/* The container of a call on its process, or NULL with the answer. */
static struct container *find_process(const struct process_request *request, struct answer *answer)
{
    struct container *container = find(request->id);

    if (!container)
        refuse(answer, INVALID_ARGUMENT, "InvalidContainerId");
    else if (container->waited || (request->process[0] && strcmp(request->process, request->id)))
        refuse(answer, NOT_FOUND, "InvalidExecId");
    else
        return container;
    return NULL;
}

/* False once the other side has gone. fd -1: after a time. */
static bool wait_readable(const struct call *call, int fd, int milliseconds)
{
    struct pollfd polled[] = {{fd, POLLIN, 0}, {call->connection->gone, POLLIN, 0}};

    while (poll(polled, 2, milliseconds) < 0 && errno == EINTR)
        ;
    return !polled[1].revents;
}

static void create_container(struct call *call, struct answer *answer)
{
    struct container_spec *spec = container_parse(call->payload);
    struct container *container = calloc(1, sizeof(*container));
    int slot = 0;

    if (!container)
        abort();
    pthread_mutex_lock(&containers_lock);
    while (slot < CONTAINERS && containers[slot])
        slot++;
    answer->none = spec->capabilities.unknown; /* as the real one */
    if (find_slot(spec->id))
        refuse(answer, INTERNAL, "exec fifo exists");
    else if (slot == CONTAINERS)
        refuse(answer, INTERNAL, "the stand-in has no room for another container");
    else if (!answer->none && !container_create(spec, &options, container, answer->text))
        answer->code = INTERNAL;
    else if (!answer->none)
        containers[slot] = container;
    if (answer->none || answer->code)
        free(container);
    pthread_mutex_unlock(&containers_lock);
    container_spec_free(spec);
}

static void start_container(struct call *call, struct answer *answer)
{
    struct process_request request = parse_process_request(call->payload);
    struct container *container = find(request.id);

    if (container && !container_has_cgroups())
        answer->none = true;
    else if (container)
        container_start(container);
    else
        refuse(answer, INTERNAL, "Invalid container id\n\nStack backtrace:\n   0: <unknown>\n");
}

static void read_stream(struct call *call, struct answer *answer, int which)
{
    struct process_request request = parse_process_request(call->payload);
    struct container *container = find_process(&request, answer);
    uint8_t bytes[READ_BYTES];
    ssize_t length;

    if (!container)
        return;
    if (!wait_readable(call, container->outputs[which], -1) ||
        (slow_answers && strlen(request.id) == SERIAL_CHARS && !wait_readable(call, -1, SLOW_MS))) {
        answer->none = true;
        return;
    }
    length = read(container->outputs[which], bytes,
                  request.number < READ_BYTES ? request.number : READ_BYTES);
    if (length < 0)
        refuse(answer, INTERNAL, strerror(errno));
    else if (length > 0)
        answer->length =
            wire_put_bytes(answer->payload, 1, bytes, (size_t)length) - answer->payload;
}

static void read_stdout(struct call *call, struct answer *answer)
{
    read_stream(call, answer, 0);
}

static void read_stderr(struct call *call, struct answer *answer)
{
    read_stream(call, answer, 1);
}

static void wait_process(struct call *call, struct answer *answer)
{
    struct process_request request = parse_process_request(call->payload);
    struct container *container = find_process(&request, answer);

    if (!container)
        return;
    if (!wait_readable(call, container->ended, -1)) {
        answer->none = true;
        return;
    }
    container->waited = true;
    answer->length =
        wire_put_number(answer->payload, 1, (uint64_t)container->status) - answer->payload;
}

static void signal_process(struct call *call, struct answer *answer)
{
    struct process_request request = parse_process_request(call->payload);
    struct container *container = find_process(&request, answer);

    if (container && kill(container->process, (int)request.number) < 0 && errno != ESRCH)
        refuse(answer, INTERNAL, strerror(errno));
}

static void remove_container(struct call *call, struct answer *answer)
{
    struct process_request request = parse_process_request(call->payload);
    struct container **slot, *container = NULL;

    pthread_mutex_lock(&containers_lock);
    slot = find_slot(request.id);
    answer->none = slot && !container_has_cgroups();
    if (slot && !answer->none) {
        container = *slot; /* never freed: its reaper may still be at work */
        *slot = NULL;
        container_remove(container);
    }
    pthread_mutex_unlock(&containers_lock);
    if (!container && !answer->none)
        refuse(answer, INTERNAL, "Invalid container id\n\nStack backtrace:\n   0: <unknown>\n");
}

static void copy(struct call *call, struct answer *answer)
{
    if (!copy_file(call->payload, answer->text, sizeof(answer->text)))
        answer->code = INTERNAL;
}

/* In the words of the policy engine with the stock images' rules, which know no such request. */
static void refuse_by_policy(struct answer *answer, const char *request)
{
    answer->code = INTERNAL;
    (void)snprintf(
        answer->text, sizeof(answer->text),
        "\"%s: internal error policy check: unexpected eval_query result len QueryResults "
        "{ result: [] }\"",
        request);
}

static void get_volume_stats(struct call *call, struct answer *answer)
{
    (void)call;
    refuse_by_policy(answer, "VolumeStatsRequest");
}

static void resize_volume(struct call *call, struct answer *answer)
{
    (void)call;
    refuse_by_policy(answer, "ResizeVolumeRequest");
}

static const struct {
    const char *name;
    void (*run)(struct call *call, struct answer *answer);
} methods[] = {
    {"CreateContainer", create_container}, {"StartContainer", start_container},
    {"ReadStdout", read_stdout},           {"ReadStderr", read_stderr},
    {"WaitProcess", wait_process},         {"SignalProcess", signal_process},
    {"RemoveContainer", remove_container}, {"GetVolumeStats", get_volume_stats},
    {"ResizeVolume", resize_volume},       {"CopyFile", copy},
};

static void run_call(struct call *call, struct answer *answer)
{
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (strcmp(methods[i].name, call->method) == 0) {
            methods[i].run(call, answer);
            return;
        }
    }
    (void)snprintf(answer->text, sizeof(answer->text), "/grpc.AgentService/%s is not supported",
                   call->method);
    answer->code = UNIMPLEMENTED;
}

/* ---- ttrpc */

static void connection_leave(struct connection *connection)
{
    bool last;

    pthread_mutex_lock(&connection->lock);
    last = --connection->users == 0;
    pthread_mutex_unlock(&connection->lock);
    if (!last)
        return;
    close(connection->fd);
    close(connection->gone);
    free(connection);
}

static void put_header(uint8_t *frame, size_t length, uint32_t stream)
{
    uint32_t words[] = {htonl((uint32_t)length), htonl(stream)};

    memcpy(frame, words, sizeof(words));
    frame[8] = RESPONSE;
    frame[9] = 0;
}

static void send_answer(const struct call *call, const struct answer *answer)
{
    static __thread uint8_t frame[ANSWER_BYTES];
    uint8_t status[TEXT_BYTES + 32], *end = frame + HEADER_BYTES, *status_end = status;

    if (answer->code) {
        status_end = wire_put_number(status_end, 1, (uint64_t)answer->code);
        status_end = wire_put_bytes(status_end, 2, answer->text, strlen(answer->text));
        end = wire_put_bytes(end, 1, status, (size_t)(status_end - status));
    }
    if (answer->length)
        end = wire_put_bytes(end, 2, answer->payload, answer->length);
    put_header(frame, (size_t)(end - frame) - HEADER_BYTES, call->stream);
    pthread_mutex_lock(&call->connection->lock);
    (void)send(call->connection->fd, frame, (size_t)(end - frame), MSG_NOSIGNAL);
    pthread_mutex_unlock(&call->connection->lock);
}

static void *serve_call(void *argument)
{
    struct call *call = argument;
    struct answer *answer = calloc(1, sizeof(*answer));

    if (!answer)
        abort();
    run_call(call, answer);
    printf("kata-agent: %s %s\n", call->method,
           answer->none   ? "never answered"
           : answer->code ? answer->text
                          : "ok");
    if (!answer->none)
        send_answer(call, answer);
    connection_leave(call->connection);
    free(answer);
    free(call->frame);
    free(call);
    return NULL;
}

static bool receive(int fd, void *bytes, size_t length)
{
    return recv(fd, bytes, length, MSG_WAITALL) == (ssize_t)length;
}

/* The next request as a call of its own, or NULL at the end. */
static struct call *receive_call(struct connection *connection)
{
    struct call *call = calloc(1, sizeof(*call));
    uint8_t header[HEADER_BYTES];
    uint32_t words[2];
    struct bytes request;
    struct field field;

    if (!call || !receive(connection->fd, header, sizeof(header)))
        return NULL;
    memcpy(words, header, sizeof(words));
    request.length = ntohl(words[0]);
    call->stream = ntohl(words[1]);
    call->connection = connection;
    call->frame = malloc(request.length + 1);
    if (request.length > FRAME_BYTES || header[8] != REQUEST ||
        !receive(connection->fd, call->frame, request.length))
        return NULL;
    request.data = call->frame;
    while (wire_next(&request, &field)) {
        if (field.number == 2)
            wire_text(field.bytes, call->method, sizeof(call->method));
        if (field.number == 3)
            call->payload = field.bytes;
    }
    return call;
}

static void start_thread(void *(*run)(void *argument), void *argument)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, run, argument) != 0)
        abort();
    pthread_detach(thread);
}

static void *serve_connection(void *argument)
{
    struct connection *connection = argument;
    struct call *call;
    uint64_t one = 1;

    while ((call = receive_call(connection))) {
        pthread_mutex_lock(&connection->lock);
        connection->users++;
        pthread_mutex_unlock(&connection->lock);
        start_thread(serve_call, call);
    }
    (void)!write(connection->gone, &one, sizeof(one));
    connection_leave(connection);
    return NULL;
}

/* ---- starting */

static void must(bool good, const char *what)
{
    if (good)
        return;
    printf("kata-agent: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* QEMU's network for guests: the other side is 10.0.2.2. */
static void configure_network(void)
{
    struct ifreq request = {.ifr_name = "eth0"};
    struct sockaddr_in address = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = inet_addr("10.0.2.15");
    memcpy(&request.ifr_addr, &address, sizeof(address));
    must(ioctl(fd, SIOCSIFADDR, &request) == 0, "eth0's address");
    address.sin_addr.s_addr = inet_addr("255.255.255.0");
    memcpy(&request.ifr_netmask, &address, sizeof(address));
    must(ioctl(fd, SIOCSIFNETMASK, &request) == 0, "eth0's netmask");
    request.ifr_flags = IFF_UP;
    must(ioctl(fd, SIOCSIFFLAGS, &request) == 0, "eth0");
    close(fd);
}

static int listen_on(const char *where)
{
    struct sockaddr_vm vsock = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY};
    struct sockaddr_in tcp = {.sin_family = AF_INET};
    bool is_vsock = strncmp(where, "vsock:", 6) == 0;
    unsigned port = (unsigned)atoi(strchr(where, ':') ? strchr(where, ':') + 1 : "0");
    int fd = socket(is_vsock ? AF_VSOCK : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    vsock.svm_port = port;
    tcp.sin_port = htons((uint16_t)port);
    if (!is_vsock)
        configure_network();
    must(bind(fd, is_vsock ? (struct sockaddr *)&vsock : (struct sockaddr *)&tcp,
              is_vsock ? sizeof(vsock) : sizeof(tcp)) == 0 &&
             listen(fd, 16) == 0,
         where);
    return fd;
}

/* In the place of those that went with sysfs. */
static int make_cgroups(void)
{
    char path[] = "/sys/fs/cgroup";

    return make_directories(path) < 0 ? -1 : mount("none", path, "cgroup2", 0, NULL);
}

int main(int argc, char **argv)
{
    int listener;

    setlinebuf(stdout);
    errno = EINVAL;
    must(argc > 1, "where to listen");
    for (int i = 2; i < argc; i++) {
        bool sysfs = strcmp(argv[i], "without-sysfs") == 0;
        bool slow = strcmp(argv[i], "slow-answers") == 0;

        must(sysfs || slow || strcmp(argv[i], "without-cgroups") == 0, argv[i]);
        without_sysfs |= sysfs;
        options.without_cgroups |= !sysfs && !slow;
        slow_answers |= slow;
    }
    if (without_sysfs)
        must(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                 umount2("/sys", MNT_DETACH) == 0 && make_cgroups() == 0,
             "sysfs");
    listener = listen_on(argv[1]);
    printf("kata-agent: listening on %s\n", argv[1]);
    for (;;) {
        struct connection *connection = calloc(1, sizeof(*connection));

        must(connection != NULL, "memory");
        connection->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        must(connection->fd >= 0, "accept");
        connection->gone = eventfd(0, EFD_CLOEXEC);
        connection->users = 1;
        pthread_mutex_init(&connection->lock, NULL);
        start_thread(serve_connection, connection);
    }
}
