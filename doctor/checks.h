/* SPDX-License-Identifier: Apache-2.0 */
/* checks.h - what the doctor examines, each part by its name. Private to doctor/.
 *
 * A part reads the node (..._read, ..._examine) and judges what was read (..._judge), which is
 * pure.
 */
#pragma once

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "config/config.h"
#include "lib/buffer.h"
#include "lib/directory.h"
#include "lib/result.h"

/* ---- finding -------------------------------------------------------------------------------- */

/* What an examination of the node found, as JSON. */

enum finding_level {
    FINDING_OK,
    FINDING_NOTE,    /* good to know; nothing has to be done */
    FINDING_WARNING, /* something is slower, coarser or less safe than it could be */
    FINDING_ERROR,   /* some volume cannot grow, no drive be attached, or crustd not start */
};

/* `[{"id","level","what","where","remedy"}, …]`, being written. */
struct findings {
    struct buffer *json; /* borrowed */
    unsigned count;

    /* What runs: evidence that outweighs what a configuration leads to. Borrowed. */
    const cJSON *running; /* as store_read_abilities() reads them; NULL: not known */
    const char *boot_id;  /* those of another boot have ended */

    /* What works, found by the way. */
    unsigned configurations, sandboxes; /* of Kata's, that give a guest its volumes; that run */
    bool tells_hypervisor, resizes_guests;
    bool ignores_group;    /* some runtime is not Kata's in Go, the only one that applies fsGroup */
    unsigned label_guests; /* of the configurations, those whose guests enforce SELinux */
    bool lacks_direct_volumes; /* Kata is too old */
};

void findings_begin(struct findings *findings, struct buffer *json);

/* where, remedy: NULL none. Texts are whole sentences without a full stop at their end. */
void findings_add(struct findings *findings, enum finding_level level, const char *id,
                  const char *where, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* 0 or -errno. */
int findings_end(struct findings *findings);

/* ---- program -------------------------------------------------------------------------------- */

/* What Kata's `path` leads to: a hypervisor, crust-qemu, or nothing.
 *
 * Kata resolves the path, links included, when a sandbox starts, and starts none where it leads
 * nowhere. A pod shows crustd a part of the node's files only, so what is not below root is looked
 * for in the root of the node's first process.
 */

enum { PROGRAM_NAME_BYTES = 128 };

enum program_state {
    PROGRAM_UNNAMED, /* no path is set */
    PROGRAM_THERE,
    PROGRAM_ABSENT,
    PROGRAM_NOT_EXECUTABLE,
    PROGRAM_UNSEEN, /* not below root, and the rest of the node cannot be seen */
};

struct program {
    enum program_state state;
    /* crust-qemu, by its name; what follows holds where state is PROGRAM_THERE. */
    bool is_crust;
    char qemu_name[PROGRAM_NAME_BYTES]; /* what it runs */
    enum program_state qemu;
    bool has_directory;   /* /run/crustd/qemu is there, and root's alone */
    bool has_other_label; /* than QEMU, for SELinux */
};

/* path: "" none is set. */
void program_find(int root, const char *path, struct program *ret_program);

/* Only whether it is there. */
enum program_state program_examine(int root, const char *path);

/* ---- host file ------------------------------------------------------------------------------ */

/* Configuration files of others, read below --root. */

enum { HOST_FILE_BYTES = 256 * 1024, HOST_NAMES = 64 };

/* Outcomes. */
enum { HOST_READ, HOST_ABSENT };

/* The whole text. HOST_READ, HOST_ABSENT or a negative with the error's text. */
int host_file_read(int root, const char *path, struct buffer *ret_text, struct error *error);

/* Those that do not begin with a dot. HOST_READ, HOST_ABSENT (ret_names is untouched then), -E2BIG
 * if there are more than HOST_NAMES, -errno. */
int host_names_read(int root, const char *directory, struct directory_names *ret_names);

/* Where the path really leads, links followed, as a path below root. As given where that can't be
 * told. HOST_READ, HOST_ABSENT, -errno. */
int host_file_resolve(int root, const char *path, char ret_path[static PATH_MAX]);

/* ---- kernel --------------------------------------------------------------------------------- */

/* What the kernel lets this process do, and as whom it runs.
 *
 * Each feature is tried, because a system-call filter or a namespace can take away what the version
 * promises; judging is pure.
 */

/* Results of system calls: 0 or -errno. */
struct kernel_facts {
    char release[65]; /* uname(2) */
    int openat2;
    int pidfd_open;
    int uevents;         /* listening to the kernel's own group */
    bool large_buffer;   /* a receive buffer beyond net.core.rmem_max may be had */
    int vsock;           /* a socket of AF_VSOCK: 0, or why not as an errno */
    int64_t now_seconds; /* CLOCK_REALTIME */

    uid_t uid;
    bool may_trace;     /* CAP_SYS_PTRACE */
    int first_process;  /* inspecting process 1: its mounts and its root */
    bool user_is_first; /* lib/process_trust.h */
    bool shows_all_processes;
};

void kernel_read(struct kernel_facts *ret_facts);
void kernel_judge(const struct kernel_facts *facts, struct findings *findings);
void kernel_judge_process(const struct kernel_facts *facts, struct findings *findings);

/* ---- watches -------------------------------------------------------------------------------- */

/* Inotify's limits, against what there is to watch. */

struct watch_facts {
    int instance;           /* an instance can be had: 0 or -errno */
    int watch;              /* and a watch: 0 or -errno */
    uint64_t max_instances; /* fs.inotify.max_user_instances; 0 unknown */
    uint64_t max_watches;
    unsigned needed; /* directories that crustd watches now */
};

void watches_read(int root, const struct config *config, struct watch_facts *ret_facts);
void watches_judge(const struct watch_facts *facts, struct findings *findings);

/* ---- paths ---------------------------------------------------------------------------------- */

/* The node's directories as crustd's configuration names them. */

void paths_examine(int root, const struct config *config, struct findings *findings);

/* ---- host mounts ---------------------------------------------------------------------------- */

/* Volumes of Kata's pods that a driver has mounted on the node. */

/* A note for each CSI driver that has mounted some. table: the node's mount table, open. sandboxes:
 * what store_read_abilities() reads; other pods are passed over. */
void host_mounts_examine(int root, const struct config *config, int table, const cJSON *sandboxes,
                         const char *boot_id, struct findings *findings);

/* ---- drives --------------------------------------------------------------------------------- */

/* Whether this process may open the disks of drive mounts.
 *
 * Nothing is opened: access(2) asks the device cgroup, too, which is what a unit with
 * DevicePolicy=closed and a pod that is not privileged forbid by.
 */

struct drive_facts {
    char device[64];   /* the block device that was tried; "": this node shows none */
    int device_access; /* reading and writing it: 0, or why not as an errno */
    struct drive_prefix {
        const char *path; /* borrowed */
        int found;        /* 0 or -errno */
        bool is_directory;
        bool is_read_only; /* image files below it cannot be opened for writing */
    } prefix[CONFIG_LIST_ITEMS];
    unsigned prefixes;
};

void drives_read(int root, const struct config *config, struct drive_facts *ret_facts);
void drives_judge(const struct drive_facts *facts, struct findings *findings);

/* Both, where drives.enabled = on. */
void drives_examine(int root, const struct config *config, struct findings *findings);

/* ---- kata settings -------------------------------------------------------------------------- */

/* The few keys of Kata's configuration.toml that decide whether volumes of its
 * sandboxes can be resized; text in, no I/O.
 *
 * Kata 4.1.0 reads the file and then every file of config.d beside it, in the order of their names;
 * what comes later wins (src/runtime/pkg/katautils/config.go decodeDropIns(), src/libs/kata-types/
 * src/config/drop_in.rs). Annotations of a pod may change it again; they are not seen here.
 */

enum { KATA_TABLES = 8, KATA_WORD_BYTES = 32, KATA_FILE_BYTES = 256, KATA_PATHS = 8 };

/* [hypervisor.NAME] */
struct kata_table {
    char name[KATA_WORD_BYTES];
    bool enable_debug;
    char debug_file[KATA_FILE_BYTES]; /* that said so last; "" none did */
    char monitor[KATA_WORD_BYTES];    /* extra_monitor_socket: "", hmp, qmp, qmp-pretty, … */
    char monitor_file[KATA_FILE_BYTES];
    bool no_block_devices;      /* disable_block_device_use */
    bool confidential;          /* confidential_guest */
    bool enforces_labels;       /* disable_guest_selinux = false: SELinux in the guest */
    char path[KATA_FILE_BYTES]; /* "": the runtime's own default */
    char path_file[KATA_FILE_BYTES];
    unsigned valid_paths; /* valid_hypervisor_paths; those beyond KATA_PATHS are passed over */
    char valid_path[KATA_PATHS][KATA_FILE_BYTES];
};

struct kata_settings {
    /* [runtime] has name or hypervisor_name: keys that the Rust runtime has, and Go's has not. */
    bool is_rust;
    char hypervisor[KATA_WORD_BYTES]; /* runtime.hypervisor_name, of the Rust runtime; "" */
    unsigned tables;
    struct kata_table table[KATA_TABLES];
};

/* Adds what one more file says to *settings, which starts as zeroes. 0, or -EBADMSG with
 * "FILE: line N: what"; what stands before that line has been added. */
int kata_settings_read(struct kata_settings *settings, const char *file, const char *text,
                       size_t length, struct error *error);

/* The table in use: the Rust runtime's by name, Go's only one. NULL if that can't be told. */
const struct kata_table *kata_settings_table(const struct kata_settings *settings);

/* ---- engine --------------------------------------------------------------------------------- */

/* Which configurations of Kata the container engine hands to its runtimes; text in, no
 * I/O.
 *
 * containerd: [plugins.….containerd.runtimes.NAME] runtime_type, runtime_path; in its options
 * ConfigPath. CRI-O: [crio.runtime.runtimes.NAME] runtime_type, runtime_path, runtime_config_path.
 * As kata-deploy of Kata 4.1.0 writes them (tools/packaging/kata-deploy/binary/src/runtime/).
 */

enum { ENGINE_RUNTIMES = 64, ENGINE_NAME_BYTES = 64, ENGINE_PATH_BYTES = 256 };

struct engine_runtime {
    char name[ENGINE_NAME_BYTES];        /* a RuntimeClass's handler */
    bool is_kata;                        /* its type, path or configuration has "kata" in it */
    bool is_rust;                        /* its path has "runtime-rs" in it */
    char config_path[ENGINE_PATH_BYTES]; /* "": the runtime looks where it was built to */
};

struct engine_runtimes {
    unsigned count;
    struct engine_runtime runtime[ENGINE_RUNTIMES];
};

/* Adds what one more file says to *runtimes, which starts as zeroes. 0, or -EBADMSG with
 * "FILE: line N: what". */
int engine_runtimes_read(struct engine_runtimes *runtimes, const char *file, const char *text,
                         size_t length, struct error *error);

/* ---- kata in use ---------------------------------------------------------------------------- */

/* Which of Kata's configurations this node uses. */

enum { KATA_IN_USE = 32, KATA_RUNTIMES_BYTES = 256 };

struct kata_configuration {
    char path[PATH_MAX]; /* links followed, for config.d stands beside the file itself */
    char runtimes[KATA_RUNTIMES_BYTES]; /* who uses it, as people call them */
};

struct kata_in_use {
    unsigned count;
    struct kata_configuration configuration[KATA_IN_USE];
};

/* Those that the container engine's configuration names, else those that Kata's runtimes look for
 * by themselves. A file that could not be read becomes a finding. */
void kata_in_use_find(int root, struct kata_in_use *ret_in_use, struct findings *findings);

/* ---- kata program --------------------------------------------------------------------------- */

/* Whether the VMM that a configuration names can be started. */

/* Of the path; pure. `runtimes`: who uses it, as people call them. */
void kata_program_judge(const struct kata_table *table, const struct program *program,
                        const char *runtimes, struct findings *findings);

/* The same for valid_hypervisor_paths, which only restrict the annotations of pods. */
void kata_program_examine_valid(int root, const struct kata_table *table, const char *runtimes,
                                struct findings *findings);

/* ---- kata version --------------------------------------------------------------------------- */

/* Which release of Kata kata-deploy has put on the node. */

struct kata_version {
    unsigned major, minor;
};

/* "4.1.0" and "3.26.0-rc0", a line's end behind it or not. */
bool kata_version_parse(const char *text, struct kata_version *ret_version);

/* Kata reads the metadata of direct-assigned volumes since 2.4.0 (Go), 3.2.0 (runtime-rs). */
bool kata_version_has_direct_volumes(const struct kata_version *version);

/* The finding about /opt/kata/VERSION, below root; none if the file is absent. */
void kata_version_examine(int root, struct findings *findings);

/* ---- drop in -------------------------------------------------------------------------------- */

/* Kata's drop-ins that come with crustd. */

enum { DROP_IN_BYTES = 512 };

/* Where crust-qemu.toml lies, which serves both runtimes: share/crustd/kata below what this program
 * was installed to (/usr; in a container, the image's), else where crustd's source has it. */
void drop_in_find(char ret_path[static DROP_IN_BYTES]);

/* ---- crust users ---------------------------------------------------------------------------- */

/* Which files of Kata's configurations need crust-qemu. */

/* Every file in the places of Kata's configurations, in use or not, and those that the container
 * engine names elsewhere. A file that cannot be read counts, because its content is not known. */
void crust_users_find(int root, struct findings *findings);

/* ---- monitor -------------------------------------------------------------------------------- */

/* What kind of monitor a running QEMU has for crustd. */

/* "crust-qemu's, QMP", "an extra monitor, QMP", …; static. By the socket's path, and by what the
 * process's arguments say of it; without the protocol where they say nothing of it. NULL: it is a
 * human monitor (HMP), which crustd does not use. */
const char *monitor_describe(pid_t pid, const char *socket);

/* ---- kata ----------------------------------------------------------------------------------- */

/* Whether volumes of sandboxes with Kata's configuration can be resized. */

/* Finds the configurations in use, below root: those that the container engine's configuration
 * names, else those that Kata's runtimes look for by themselves. */
void kata_examine(int root, const struct config *config, struct findings *findings);

/* The findings about one configuration; pure. `runtimes`: the runtimes that use it, as people call
 * them. */
void kata_judge(const struct kata_settings *settings, const struct program *program,
                const char *file, const char *runtimes, const struct config *config,
                struct findings *findings);

/* ---- sandboxes ------------------------------------------------------------------------------ */

/* Which of the volumes in running sandboxes could be resized. */

/* sandboxes: what store_read_abilities() reads. Those of another boot are passed over. */
void sandboxes_judge(const cJSON *sandboxes, const char *boot_id, const struct config *config,
                     struct findings *findings);

/* {sandbox id: which of its processes or records is not trusted, and why}. */
void sandboxes_judge_doubts(const cJSON *doubts, struct findings *findings);
