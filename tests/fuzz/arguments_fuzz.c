/* SPDX-License-Identifier: Apache-2.0 */
/* arguments_fuzz.c - arguments of a process, each followed by a NUL, as any user may choose them,
 * through everything that reads them: which sandbox they name, as a VMM or as a shim, which kind of
 * VMM and of guest, and whether crust-qemu adds a monitor.
 *
 * These readers must agree: the sandbox in the index, and the one after which crust-qemu names a
 * socket, is named by the arguments.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crust-qemu/monitor_option.c"
#include "lib/cleanup.h"
#include "lib/process.h"
#include "observe/kata.h"
#include "observe/observed_sandbox.h"

enum { ARGUMENTS = 64, INPUT_BYTES = 64 * 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void check_sandbox(const struct buffer *arguments)
{
    struct sandbox_arguments named;

    if (!sandbox_arguments_read(arguments, &named))
        return;
    must(named.id[0] && strlen(named.id) < sizeof(named.id));
    must(process_arguments_name(arguments, named.id));
    must(named.guest_cid != UINT32_MAX);
}

/* What the guest may be must not depend on where in the arguments it stands. */
static void check_traits(const struct buffer *arguments)
{
    static const char word[] = "confidential-guest-support=";
    const char *text = buffer_text(arguments);
    struct guest_traits traits = {0};

    guest_traits_from_arguments(text, arguments->length, &traits);
    if (memmem(text, arguments->length, word, strlen(word)))
        must(traits.is_confidential);
}

static void check_monitor(const struct buffer *arguments)
{
    const char *argument = buffer_text(arguments), *end = argument + arguments->length;
    const char *list[ARGUMENTS + 1], *name;
    struct monitor_option option;
    char id[sizeof(option.path)];
    size_t count = 0;

    for (; argument < end && count < ARGUMENTS; argument += strlen(argument) + 1)
        list[count++] = argument;
    list[count] = NULL;
    if (!monitor_option(list, MONITOR_DIRECTORY, &option))
        return;
    name = strrchr(option.path, '/') + 1;
    must(strncmp(option.path, MONITOR_DIRECTORY "/", strlen(MONITOR_DIRECTORY) + 1) == 0);
    must(name == option.path + strlen(MONITOR_DIRECTORY) + 1 && name[0] != '.');
    must(!strpbrk(option.path, ", \n"));
    (void)snprintf(id, sizeof(id), "%.*s", (int)(strlen(name) - strlen(".sock")), name);
    must(process_arguments_name(arguments, id));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(INPUT_BYTES);

    if (size == 0 || buffer_append(&arguments, data, size) < 0)
        return 0;
    check_sandbox(&arguments);
    check_traits(&arguments);
    check_monitor(&arguments);
    (void)hypervisor_kind_from_program(process_arguments_program(&arguments));
    (void)process_arguments_name(&arguments, buffer_text(&arguments));
    return 0;
}
