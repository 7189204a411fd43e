/* SPDX-License-Identifier: Apache-2.0 */
/* cloud_hypervisor_fuzz.c - a body through all readers of Cloud Hypervisor's answers. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hypervisor/drive_report.h"
#include "lib/text.h"

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
    const char *body = (const char *)data;
    char word[CLOUD_HYPERVISOR_WORD_BYTES];
    struct drive_report report = {.count = 0}, leaving = {.count = 0};
    struct error error;

    word[0] = '\0';
    if (cloud_hypervisor_read_ping(body, size, word, &error) != HYPERVISOR_DONE)
        expect_text(error.text);
    expect_text(word);
    if (cloud_hypervisor_read_info(body, size, word, &report, "crust_", &leaving, &error) == 0) {
        expect_text(word);
        expect_named(&report);
        expect_named(&leaving);
    }
    drive_report_done(&report);
    drive_report_done(&leaving);
    if (cloud_hypervisor_refusal(body, size, &error) == HYPERVISOR_DONE || !error.text[0])
        abort();
    expect_text(error.text);
    return 0;
}
