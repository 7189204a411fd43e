/* SPDX-License-Identifier: Apache-2.0 */
/* firecracker_fuzz.c - a body through all readers of Firecracker's answers. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hypervisor/drive_report.h"
#include "lib/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *body = (const char *)data;
    struct drive_report report = {.count = 0};
    struct error error;

    if (firecracker_read_config(body, size, &report, &error) == 0)
        for (size_t i = 0; i < report.count; i++)
            if (!report.entries[i].path[0] || strpbrk(report.entries[i].id, "/ \r\n?#%\""))
                abort(); /* an id goes into a request line */
    drive_report_done(&report);
    if (firecracker_refusal(body, size, &error) != HYPERVISOR_REFUSED || !error.text[0] ||
        !text_is_utf8(error.text, strlen(error.text)) || strpbrk(error.text, "\n\r\x1b"))
        abort();
    return 0;
}
