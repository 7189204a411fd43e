// SPDX-License-Identifier: Apache-2.0

// nri-engine is a container engine as far as an NRI plugin sees one: containerd's own packages answer the
// plugin, and change a container's specification as it asks. Each line of standard input is a call, and each line of standard output the answer to it:
//
//	{"call": "CreateContainer", "pod": {"id": "…", …}, "container": {"linux": {"devices": […]}}}
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/runtime-tools/generate"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
)

type call struct {
	Call      string          `json:"call"`
	Pod       *api.PodSandbox `json:"pod"`
	Container *api.Container  `json:"container"`
}

type answer struct {
	Plugins int                 `json:"plugins"` // that have synchronized since the start
	Error   string              `json:"error,omitempty"`
	Devices []rspec.LinuxDevice `json:"devices"` // of the container that is created
	Mounts  []rspec.Mount       `json:"mounts"`
}

// specification is what an adjustment changes. What else the interface has is not used, and would end the
// program.
type specification struct {
	generate.UnderlyingGenerator
	content rspec.Spec
}

func (s *specification) Spec() *rspec.Spec { return &s.content }

func (s *specification) AddDevice(device rspec.LinuxDevice) {
	s.content.Linux.Devices = append(s.content.Linux.Devices, device)
}

func (s *specification) RemoveDevice(path string) {
	s.content.Linux.Devices = slices.DeleteFunc(s.content.Linux.Devices,
		func(device rspec.LinuxDevice) bool { return device.Path == path })
}

func (s *specification) AddLinuxResourcesDevice(bool, string, *int64, *int64, string) {}

func (s *specification) AddMount(mount rspec.Mount) {
	s.content.Mounts = append(s.content.Mounts, mount)
}

func (s *specification) RemoveMount(destination string) {
	s.content.Mounts = slices.DeleteFunc(s.content.Mounts,
		func(mount rspec.Mount) bool { return mount.Destination == destination })
}

func (s *specification) Mounts() []rspec.Mount { return s.content.Mounts }
func (s *specification) ClearMounts()          { s.content.Mounts = nil }

// adjusted is the container's specification as the runtime gets it.
func adjusted(container *api.Container, adjustment *api.ContainerAdjustment) (*rspec.Spec, error) {
	s := &specification{content: rspec.Spec{Linux: &rspec.Linux{}}}
	for _, device := range container.GetLinux().GetDevices() {
		s.AddDevice(device.ToOCI())
	}
	for _, mount := range container.GetMounts() {
		s.AddMount(mount.ToOCI(nil))
	}
	return s.Spec(), generate.SpecGenerator(s).Adjust(adjustment)
}

// engine has the pods that were run and not removed.
type engine struct {
	*adaptation.Adaptation
	mutex   sync.Mutex
	pods    map[string]*api.PodSandbox
	plugins int
}

func (e *engine) synchronize(ctx context.Context, plugin adaptation.SyncCB) error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	var pods []*api.PodSandbox
	for _, pod := range e.pods {
		pods = append(pods, pod)
	}
	_, err := plugin(ctx, pods, nil)
	if err == nil {
		e.plugins++
	}
	return err
}

func update(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (e *engine) do(one call) (*rspec.Spec, error) {
	ctx := context.Background()
	var err error
	switch one.Call {
	case "RunPodSandbox":
		err = e.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: one.Pod})
	case "CreateContainer":
		asked := proto.Clone(one.Container).(*api.Container) // which the plugins' adjustments change
		response, err := e.CreateContainer(ctx, &api.CreateContainerRequest{Pod: one.Pod, Container: asked})
		if err != nil {
			return nil, err
		}
		return adjusted(one.Container, response.GetAdjust())
	case "RemoveContainer":
		err = e.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: one.Pod, Container: one.Container})
	case "StopPodSandbox":
		err = e.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: one.Pod})
	case "RemovePodSandbox":
		err = e.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: one.Pod})
	}
	return nil, err
}

func (e *engine) keep(one call) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	switch one.Call {
	case "RunPodSandbox":
		e.pods[one.Pod.GetId()] = one.Pod
	case "RemovePodSandbox":
		delete(e.pods, one.Pod.GetId())
	}
}

func serve(socket string) error {
	e := &engine{pods: map[string]*api.PodSandbox{}}
	var err error
	e.Adaptation, err = adaptation.New("nri-engine", "1", e.synchronize, update, adaptation.WithSocketPath(socket),
		adaptation.WithPluginPath("/nonexistent"), adaptation.WithPluginConfigPath("/nonexistent"))
	if err != nil {
		return err
	}
	if err := e.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		if !lines.Scan() {
			return lines.Err()
		}
		var one call
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return err
		}
		e.keep(one)
		created, err := e.do(one)
		e.mutex.Lock()
		result := answer{Plugins: e.plugins}
		e.mutex.Unlock()
		if created != nil {
			result.Devices, result.Mounts = created.Linux.Devices, created.Mounts
		}
		if err != nil {
			result.Error = err.Error()
		}
		if err := answers.Encode(result); err != nil {
			return err
		}
	}
}

func main() {
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "nri-engine: %v\n", err)
		os.Exit(1)
	}
}
