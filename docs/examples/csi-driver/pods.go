// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// pods tells which pods run in micro-VMs. NodePublishVolume says which pod it is for
// (CSIDriver.spec.podInfoOnMount), and its runtime class is known to the API server.
type pods struct {
	api       string   // URL; "" is the cluster that this runs in
	vmClasses []string // patterns
}

const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

// inVM is asked while the pod starts. An error means "not now": a guess could give a device two users.
func (p pods) inVM(ctx context.Context, volumeContext map[string]string) (bool, error) {
	namespace := volumeContext["csi.storage.k8s.io/pod.namespace"]
	name := volumeContext["csi.storage.k8s.io/pod.name"]
	if namespace == "" || name == "" {
		return false, status.Error(codes.FailedPrecondition,
			"which pod this is for is not said: the CSIDriver object needs podInfoOnMount: true")
	}
	class, uid, err := p.runtimeClass(ctx, namespace, name)
	if err != nil {
		return false, status.Errorf(codes.Unavailable, "runtime class of pod %s/%s: %v", namespace, name, err)
	}
	if uid != volumeContext["csi.storage.k8s.io/pod.uid"] {
		return false, status.Errorf(codes.Unavailable, "pod %s/%s is another one by now", namespace, name)
	}
	for _, pattern := range p.vmClasses {
		if matched, err := path.Match(pattern, class); err == nil && matched {
			return true, nil
		}
	}
	return false, nil
}

func (p pods) runtimeClass(ctx context.Context, namespace, name string) (class, uid string, err error) {
	client, url, token := http.DefaultClient, p.api, ""
	if url == "" {
		if client, url, token, err = inCluster(); err != nil {
			return "", "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s", url, namespace, name), nil)
	if err != nil {
		return "", "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", "", fmt.Errorf("the API server says %s", response.Status)
	}
	var pod struct {
		Metadata struct{ UID string }
		Spec     struct{ RuntimeClassName string }
	}
	err = json.NewDecoder(http.MaxBytesReader(nil, response.Body, 4<<20)).Decode(&pod)
	return pod.Spec.RuntimeClassName, pod.Metadata.UID, err
}

// inCluster reads the service account anew each time: tokens are replaced.
func inCluster() (*http.Client, string, string, error) {
	token, err := os.ReadFile(serviceAccount + "token")
	if err != nil {
		return nil, "", "", err
	}
	authority, err := os.ReadFile(serviceAccount + "ca.crt")
	if err != nil {
		return nil, "", "", err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots},
		DisableKeepAlives: true,
	}}
	server := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	return client, "https://" + server, strings.TrimSpace(string(token)), nil
}
