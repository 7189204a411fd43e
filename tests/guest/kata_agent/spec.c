/* SPDX-License-Identifier: Apache-2.0 */
/* spec.c - CreateContainerRequest: field numbers of Kata's agent.proto and oci.proto, the same from
 * 2.5.0 to 4.1.0. */
#include "container.h"
#include "storage.h"

#include <linux/capability.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned number;
} capabilities[] = {
    {"CAP_SYS_RESOURCE", CAP_SYS_RESOURCE},
    {"CAP_SYS_ADMIN", CAP_SYS_ADMIN},
    {"CAP_CHOWN", CAP_CHOWN},
    {"CAP_DAC_READ_SEARCH", CAP_DAC_READ_SEARCH},
    {"CAP_DAC_OVERRIDE", CAP_DAC_OVERRIDE},
    {"CAP_FOWNER", CAP_FOWNER},
    {"CAP_FSETID", CAP_FSETID},
    {"CAP_KILL", CAP_KILL},
    {"CAP_NET_ADMIN", CAP_NET_ADMIN},
    {"CAP_SYS_CHROOT", CAP_SYS_CHROOT},
    {"CAP_SYS_PTRACE", CAP_SYS_PTRACE},
};

static const struct {
    const char *name;
    int flag;
} namespaces[] = {
    {"mount", CLONE_NEWNS}, {"ipc", CLONE_NEWIPC},     {"uts", CLONE_NEWUTS},
    {"pid", CLONE_NEWPID},  {"network", CLONE_NEWNET}, {"cgroup", CLONE_NEWCGROUP},
};

enum {
    COUNT_CAPABILITIES = sizeof(capabilities) / sizeof(capabilities[0]),
    COUNT_NAMESPACES = sizeof(namespaces) / sizeof(namespaces[0])
};

static char *duplicate(struct bytes bytes)
{
    char *text = malloc(bytes.length + 1);

    if (!text)
        abort();
    wire_text(bytes, text, bytes.length + 1);
    return text;
}

static void add_capability(struct container_capabilities *all, uint64_t *mask, struct bytes name)
{
    char text[64];

    wire_text(name, text, sizeof(text));
    for (unsigned i = 0; i < COUNT_CAPABILITIES; i++) {
        if (strcmp(capabilities[i].name, text) == 0) {
            *mask |= UINT64_C(1) << capabilities[i].number;
            return;
        }
    }
    all->unknown = true;
}

static void parse_capabilities(struct bytes message, struct container_capabilities *all)
{
    struct field field;

    all->present = true;
    while (wire_next(&message, &field)) {
        uint64_t *const masks[] = {
            NULL,         &all->bounding, &all->effective, &all->inheritable, &all->permitted,
            &all->ambient};

        if (field.number >= 1 && field.number <= 5)
            add_capability(all, masks[field.number], field.bytes);
    }
}

static void parse_user(struct bytes message, struct container_spec *spec)
{
    struct field field;

    while (wire_next(&message, &field)) {
        if (field.number == 1)
            spec->user = (uint32_t)field.value;
        if (field.number == 2)
            spec->group = (uint32_t)field.value;
    }
}

static void parse_process(struct bytes message, struct container_spec *spec)
{
    struct field field;

    spec->has_process = true;
    while (wire_next(&message, &field)) {
        switch (field.number) {
        case 3:
            parse_user(field.bytes, spec);
            break;
        case 4:
            if (spec->argument_count < ARGUMENTS)
                spec->arguments[spec->argument_count++] = duplicate(field.bytes);
            break;
        case 5:
            if (spec->environment_count < ARGUMENTS)
                spec->environment[spec->environment_count++] = duplicate(field.bytes);
            break;
        case 6:
            wire_text(field.bytes, spec->directory, sizeof(spec->directory));
            break;
        case 7:
            parse_capabilities(field.bytes, &spec->capabilities);
            break;
        case 9:
            spec->no_new_privileges = field.value;
            break;
        default:
            break;
        }
    }
}

static void parse_root(struct bytes message, struct container_spec *spec)
{
    struct field field;

    while (wire_next(&message, &field)) {
        if (field.number == 1)
            wire_text(field.bytes, spec->root, sizeof(spec->root));
        if (field.number == 2)
            spec->root_read_only = field.value;
    }
}

static void parse_mount(struct bytes message, struct container_spec *spec)
{
    struct container_mount *mount = &spec->mounts[spec->mount_count];
    struct field field;

    if (spec->mount_count == MOUNTS)
        return;
    spec->mount_count++;
    while (wire_next(&message, &field)) {
        if (field.number == 1)
            wire_text(field.bytes, mount->destination, sizeof(mount->destination));
        if (field.number == 2)
            wire_text(field.bytes, mount->source, sizeof(mount->source));
        if (field.number == 3)
            wire_text(field.bytes, mount->type, sizeof(mount->type));
        if (field.number == 4 && mount->option_count < OPTIONS)
            wire_text(field.bytes, mount->options[mount->option_count++],
                      sizeof(mount->options[0]));
    }
}

static void parse_namespace(struct bytes message, struct container_spec *spec)
{
    struct field field;
    char name[32] = "", path[PATH_BYTES] = "";

    while (wire_next(&message, &field)) {
        if (field.number == 1)
            wire_text(field.bytes, name, sizeof(name));
        if (field.number == 2)
            wire_text(field.bytes, path, sizeof(path));
    }
    if (strcmp(path, "/proc/1/ns/pid") == 0 && strcmp(name, "pid") == 0)
        spec->joins_pids = true; /* which are the agent's own */
    for (unsigned i = 0; i < COUNT_NAMESPACES; i++) {
        if (!path[0] && strcmp(namespaces[i].name, name) == 0)
            spec->namespaces |= namespaces[i].flag;
    }
}

static void parse_linux(struct bytes message, struct container_spec *spec)
{
    struct field field;

    while (wire_next(&message, &field)) {
        if (field.number == 5)
            wire_text(field.bytes, spec->cgroup, sizeof(spec->cgroup));
        if (field.number == 6)
            parse_namespace(field.bytes, spec);
    }
}

static void parse_spec(struct bytes message, struct container_spec *spec)
{
    struct field field;

    while (wire_next(&message, &field)) {
        switch (field.number) {
        case 2:
            parse_process(field.bytes, spec);
            break;
        case 3:
            parse_root(field.bytes, spec);
            break;
        case 5:
            parse_mount(field.bytes, spec);
            break;
        case 8:
            parse_linux(field.bytes, spec);
            break;
        default:
            break;
        }
    }
}

struct container_spec *container_parse(struct bytes request)
{
    struct container_spec *spec = calloc(1, sizeof(*spec));
    struct field field;

    if (!spec)
        abort();
    while (wire_next(&request, &field)) {
        if (field.number == 1)
            wire_text(field.bytes, spec->id, sizeof(spec->id));
        if (field.number == 5) {
            spec->has_storage = true;
            storage_parse(field.bytes, &spec->storage);
        }
        if (field.number == 6)
            parse_spec(field.bytes, spec);
    }
    return spec;
}

void container_spec_free(struct container_spec *spec)
{
    for (unsigned i = 0; i < spec->argument_count; i++)
        free(spec->arguments[i]);
    for (unsigned i = 0; i < spec->environment_count; i++)
        free(spec->environment[i]);
    free(spec);
}
