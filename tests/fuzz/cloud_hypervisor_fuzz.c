/* SPDX-License-Identifier: Apache-2.0 */
/* cloud_hypervisor_fuzz.c - a body through all readers of Cloud Hypervisor's answers. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/text.h"
#include "tests/unit/hypervisor/http_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is put before people is text, whatever came. */
static void expect_text(const char *text)
{
    if (!text_is_utf8(text, strlen(text)) || strpbrk(text, "\n\r\x1b"))
        abort();
}

static void expect_named(const struct drive_report *report)
{
    for (size_t i = 0; i < report->count; i++)
        if (!report->entries[i].id[0] || !report->entries[i].path[0])
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct vmm_http_kind *kind = &cloud_hypervisor_kind;
    vmm_http_reader *const readers[] = {kind->read_version, kind->read_list, kind->read_guest};
    cleanup(http_answer_done) struct http_answer answer;

    http_answer_init(&answer, kind, data, size);
    for (size_t i = 0; i < array_length(readers); i++)
        if (vmm_http_read(&answer.http, readers[i]) != HYPERVISOR_DONE)
            expect_text(answer.reply.error.text);
    expect_text(answer.reply.version);
    expect_named(&answer.http.drives);
    expect_named(&answer.http.leaving);
    if (vmm_http_refusal(&answer.http) == HYPERVISOR_DONE || !answer.reply.error.text[0])
        abort();
    expect_text(answer.reply.error.text);
    return 0;
}
