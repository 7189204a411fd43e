/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_arguments.c - the sandbox that the arguments of a VMM or a shim name. */
#include "observe/observed_sandbox.h"

#include <stdlib.h>
#include <string.h>

#include "lib/process.h"

/* Kata's VMMs have a few hundred arguments; any user can start processes with far more. */
enum { SEARCHED = 2048 };

/* Reserved ids of vsock: 0 is the hypervisor, 1 the local machine, 2 the host (vsock(7)). */
enum { FIRST_GUEST_CID = 3 };

static bool set_id(struct sandbox_arguments *named, enum process_role role, const char *id,
                   size_t length)
{
    if (!length || length >= sizeof(named->id))
        return false;
    memcpy(named->id, id, length);
    named->id[length] = '\0';
    named->role = role;
    return true;
}

/* The id is the last directory of the socket's path, not counting run/ and root/. */
static bool set_id_of_socket(struct sandbox_arguments *named, const char *path)
{
    const char *end = strrchr(path, '/');

    while (end && end > path) {
        const char *name = end;

        while (name > path && name[-1] != '/')
            name--;
        if (strncmp(name, "run/", 4) != 0 && strncmp(name, "root/", 5) != 0)
            return set_id(named, PROCESS_VMM, name, (size_t)(end - name));
        end = name > path ? name - 1 : NULL;
    }
    return false;
}

static bool read_option(struct sandbox_arguments *named, const char *option, const char *value)
{
    static const char prefix[] = "sandbox-";

    if (option[0] != '-')
        return false;
    if (strcmp(option, "-name") == 0 && strncmp(value, prefix, strlen(prefix)) == 0)
        return set_id(named, PROCESS_VMM, value + strlen(prefix),
                      strcspn(value + strlen(prefix), ","));
    if (strcmp(option, "--api-socket") == 0 || strcmp(option, "--api-sock") == 0)
        return set_id_of_socket(named, value);
    if (strcmp(option, "--id") == 0)
        return set_id(named, PROCESS_VMM, value, strlen(value));
    if (strcmp(option, "-id") == 0)
        return set_id(named, PROCESS_SHIM, value, strlen(value));
    return false;
}

static uint32_t read_cid(const char *argument)
{
    static const char name[] = "guest-cid=";
    const char *at = strstr(argument, name);
    char *end;
    unsigned long cid;

    if (!at || (at > argument && at[-1] != ','))
        return 0;
    cid = strtoul(at + strlen(name), &end, 10);
    return (*end == ',' || !*end) && cid >= FIRST_GUEST_CID && cid < UINT32_MAX ? (uint32_t)cid : 0;
}

bool sandbox_arguments_read(const struct buffer *arguments, struct sandbox_arguments *ret_named)
{
    const char *argument = buffer_text(arguments), *end = argument + arguments->length;
    const char *previous = NULL;
    bool found = false;

    *ret_named = (struct sandbox_arguments){0};
    for (unsigned i = 0; argument < end && i < SEARCHED; i++) {
        if (previous && !found)
            found = read_option(ret_named, previous, argument);
        if (!ret_named->guest_cid)
            ret_named->guest_cid = read_cid(argument);
        previous = argument;
        argument += strlen(argument) + 1;
    }
    ret_named->hypervisor = hypervisor_kind_from_program(process_arguments_program(arguments));
    if (!found || ret_named->role != PROCESS_SHIM)
        return found && !process_arguments_are_jailers(arguments);
    /* The engine also runs the shim's program with the shim's options to start the shim, and to
     * clean up after it. */
    return strcmp(previous, "start") != 0 && strcmp(previous, "delete") != 0;
}
