/* SPDX-License-Identifier: Apache-2.0 */
/* process_list.c - see process.h. */
#include "lib/process.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "lib/cleanup.h"
#include "lib/process_reader.h"

/* PART_BYTES: the bytes requested ahead for each process. Kata's shims have 200, its QEMUs some
 * thousands. */
enum { AHEAD = 32, PART_BYTES = 8 * 1024 };

struct process_list {
    DIR *proc;
    unsigned count, next;
    struct process_reading process[AHEAD];
    struct buffer text; /* of all of them, concatenated */
    size_t at;          /* where the text of the current process begins */
};

int process_list_new(struct process_list **ret_list)
{
    struct process_list *list = calloc(1, sizeof(*list));

    if (!list)
        return -ENOMEM;
    buffer_init(&list->text, (size_t)AHEAD * PART_BYTES);
    list->proc = opendir("/proc");
    if (!list->proc) {
        int r = -errno;

        process_list_free(list);
        return r;
    }
    *ret_list = list;
    return 0;
}

struct process_list *process_list_free(struct process_list *list)
{
    if (!list)
        return NULL;
    dir_closep(&list->proc);
    buffer_done(&list->text);
    free(list);
    return NULL;
}

/* Lists some more processes. 0 or -errno. */
static int list_some(struct process_list *list)
{
    const struct dirent *name;

    list->count = list->next = 0;
    do {
        char *end;
        long pid;

        errno = 0;
        name = readdir(list->proc);
        pid = name ? strtol(name->d_name, &end, 10) : 0;
        if (pid > 0 && pid <= INT_MAX && !*end)
            list->process[list->count++] = (struct process_reading){.pid = (pid_t)pid};
    } while (name && list->count < AHEAD);
    return name || list->count ? 0 : -errno;
}

/* If this fails, each process is read separately, which finds the one that hangs. */
static void read_ahead(struct process_list *list)
{
    buffer_clear(&list->text);
    list->at = 0;
    if (process_reader_is_used() && list->count &&
        process_reader_read(list->process, list->count, PART_BYTES, &list->text) < 0)
        for (unsigned i = 0; i < list->count; i++)
            list->process[i].length = PART_BYTES;
}

int process_list_next(struct process_list *list, pid_t *ret_pid)
{
    int r = 0;

    *ret_pid = 0;
    if (list->next)
        list->at += list->process[list->next - 1].length;
    if (list->next == list->count) {
        r = list_some(list);
        if (r == 0)
            read_ahead(list);
    }
    if (list->next < list->count)
        *ret_pid = list->process[list->next++].pid;
    return r;
}

int process_list_read_arguments(const struct process_list *list, size_t bytes,
                                struct buffer *ret_arguments)
{
    const struct process_reading *process = &list->process[list->next - 1];

    if (!process_reader_is_used() || process->length >= PART_BYTES)
        return process_read_first_arguments(process->pid, bytes, ret_arguments);
    if (process->result < 0)
        return process->result;
    return buffer_append(ret_arguments, buffer_text(&list->text) + list->at,
                         process->length < bytes ? process->length : bytes);
}
