/* SPDX-License-Identifier: Apache-2.0 */
/* container.h - what CreateContainer describes, made real: a process in namespaces of its own.
 *
 * As kata-agent does it when it is the first process of an initrd: the root is bound below
 * /run/kata-containers/ID/rootfs and moved onto "/" in the container (nothing can be pivoted away
 * from an initramfs), mounts follow in the order given, the process waits for StartContainer.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire.h"

enum {
    ID_BYTES = 128,
    PATH_BYTES = 512,
    TEXT_BYTES = 256,
    ARGUMENTS = 128,
    MOUNTS = 128,
    OPTIONS = 16,
    CONTAINERS = 16,
};

struct container_mount {
    char destination[PATH_BYTES], source[PATH_BYTES], type[32];
    char options[OPTIONS][64];
    unsigned option_count;
};

/* A disk that the agent mounts itself. */
struct container_storage {
    char driver[32], source[64];
    struct container_mount mount; /* its source is not given */
    bool has_group;
    uint32_t group;
};

/* Capabilities as masks; unknown names are told apart, because the agent never answers them. */
struct container_capabilities {
    bool present, unknown;
    uint64_t bounding, effective, inheritable, permitted, ambient;
};

struct container_spec {
    char id[ID_BYTES];
    char root[PATH_BYTES];
    bool root_read_only;
    char *arguments[ARGUMENTS + 1], *environment[ARGUMENTS + 1];
    unsigned argument_count, environment_count;
    char directory[PATH_BYTES];
    bool no_new_privileges;
    bool has_process;
    uint32_t user, group;
    struct container_capabilities capabilities;
    char cgroup[PATH_BYTES];
    int namespaces;  /* CLONE_NEW…, of its own */
    bool joins_pids; /* is in the pid namespace of the agent */
    struct container_mount mounts[MOUNTS];
    unsigned mount_count;
    struct container_storage storage;
    bool has_storage;
};

struct container {
    char id[ID_BYTES];
    pid_t process;
    int start;      /* a byte to it starts the program */
    int input;      /* the program's standard input, which nobody writes to */
    int outputs[2]; /* its standard output and error */
    int ended;      /* eventfd, readable once it has ended */
    int status;     /* valid then; 128 + N for a signal */
    bool waited;    /* WaitProcess was answered: its process is forgotten */
    char cgroup[PATH_BYTES];
    char storage[PATH_BYTES]; /* where its disk is mounted; "" */
};

/* The spec of a CreateContainerRequest, allocated. */
struct container_spec *container_parse(struct bytes request);
void container_spec_free(struct container_spec *spec);

/* Options of the stand-in. */
struct container_options {
    bool without_cgroups; /* as if the guest's kernel had none */
};

/* True, or false with the text of the answer, of TEXT_BYTES. Nothing is left then. */
bool container_create(const struct container_spec *spec, const struct container_options *options,
                      struct container *ret_container, char *ret_text);
void container_start(struct container *container);

/* mount(2)'s flags and data, of options. */
void container_split_options(const struct container_mount *mount, unsigned long *ret_flags,
                             char *ret_data, size_t size);

/* Whether the guest has the cgroup file system. */
bool container_has_cgroups(void);

/* Kills what runs and takes everything away, without waiting for what the kernel does not let go.
 */
void container_remove(struct container *container);
