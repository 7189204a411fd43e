/* SPDX-License-Identifier: Apache-2.0 */
/* drive_asked.c - the texts of a request, taken one by one. */
#include "api/drive_asked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/drive_form.h"

#define REFUSE(error, ...) answer_refuse((error), ANSWER_BAD_REQUEST, __VA_ARGS__)

/* ---- taking ---- */

struct drive_asked *drive_asked_new(enum drive_asked_call call)
{
    struct drive_asked *asked = calloc(1, sizeof(*asked));

    if (!asked)
        return NULL;
    asked->call = call;
    asked->attach = (struct reconciler_drive_attach){.drive_id = "",
                                                     .sandbox_id = "",
                                                     .host_path = "",
                                                     .vm_path = "",
                                                     .fs_type = "",
                                                     .option = asked->option,
                                                     .container = asked->container};
    return asked;
}

enum status_code drive_asked_take(struct drive_asked *asked, const struct drive_asked_text *text,
                                  size_t limit, const char **ret_text, struct error *error)
{
    char *copy = asked->texts + asked->used;

    if (text->length > limit || text->length >= sizeof(asked->texts) - asked->used)
        return REFUSE(error, "%s is longer than %zu bytes", text->name, limit);
    if (text->length && !json_is_text(text->bytes, text->length))
        return REFUSE(error, "%s is not UTF-8, or has a NUL", text->name);
    if (text->length) /* an empty member may have no bytes at all */
        memcpy(copy, text->bytes, text->length);
    copy[text->length] = '\0';
    asked->used += text->length + 1;
    *ret_text = copy;
    return STATUS_OK;
}

enum status_code drive_asked_add_option(struct drive_asked *asked, const void *bytes, size_t length,
                                        struct error *error)
{
    const unsigned i = asked->attach.options;
    char name[DRIVE_ASKED_NAME_BYTES];
    enum status_code code;

    if (i == DRIVE_OPTIONS)
        return REFUSE(error, "there are more than %d options", DRIVE_OPTIONS);
    (void)snprintf(name, sizeof(name), "options[%u]", i);
    code = drive_asked_take(asked, &(struct drive_asked_text){name, bytes, length},
                            DRIVE_OPTION_CHARS, &asked->option[i], error);
    asked->attach.options += code == STATUS_OK;
    return code;
}

struct reconciler_drive_container *
drive_asked_add_container(struct drive_asked *asked, char ret_name[static DRIVE_ASKED_NAME_BYTES],
                          struct error *error)
{
    const unsigned i = asked->attach.containers;

    if (i == DRIVE_CONTAINERS) {
        (void)REFUSE(error, "there are more than %d containers", DRIVE_CONTAINERS);
        return NULL;
    }
    (void)snprintf(ret_name, DRIVE_ASKED_NAME_BYTES, "containers[%u]", i);
    asked->container[i] =
        (struct reconciler_drive_container){.container_id = "", .path = "", .sub_path = ""};
    asked->attach.containers++;
    return &asked->container[i];
}

/* ---- checking ---- */

enum status_code drive_asked_check(const struct drive_asked *asked, struct error *error)
{
    const struct reconciler_drive_attach *attach = &asked->attach;
    enum status_code code;

    if (asked->call == DRIVE_ASKED_ATTACH)
        return drive_form_check(attach, error);
    code = drive_form_check_id(attach->drive_id, error);
    return code == STATUS_OK ? drive_form_check_limits(&attach->limits, error) : code;
}
