/* SPDX-License-Identifier: Apache-2.0 */
/* devices.h - the guest's modules and devices, and the small texts by which they are known.
 *
 * A device is named by the kernel's name (vda), a PCI path (pci:02/01) or a SCSI address
 * (scsi:0:1), see init.c. Results are 0 or -errno where nothing else is said.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define WORDS_MAX 16

/* Splits text in place at any of the separators; returns the number of words. */
size_t split(char *text, const char *separators, char *words[WORDS_MAX]);

/* Reads the first line of a small file. False if there is none. */
bool read_line(const char *path, char *line, int line_bytes);

/* Loads a module and what it needs. Without a list it is built in, or mount(2) will say. */
int load_module(const char *name);

/* Finds the kernel's name of a device. False if it is not there (yet). */
bool find_device(const char *device, char name[NAME_MAX + 1]);

/* Waits until a device can be opened; node becomes its name below /dev. */
int wait_device(const char *device, char node[PATH_MAX]);

/* Waits for a port that an agent is to listen on (serial://PATH): it shows up some time after its
 * driver was loaded. */
void wait_port(const char *address);
