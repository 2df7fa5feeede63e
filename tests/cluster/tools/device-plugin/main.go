// A device plugin for tests: devices that are nothing but names, below switches, handed out as
// makers of GPUs hand out theirs.
//
//	device-plugin -resource NAME -devices ID,ID/ID,ID [-directory DIR]
//
// Devices below one switch have commas between them, switches slashes. A container that is given
// some sees their names in DEVICES. The kubelet is told to prefer, for each pod, the fullest switch
// that holds all of its devices, else the emptiest ones. Ends when the kubelet has gone.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const deadline = 30 * time.Second

type plugin struct {
	api.UnimplementedDevicePluginServer
	switches [][]string
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	all := &api.ListAndWatchResponse{}
	for _, below := range p.switches {
		for _, id := range below {
			all.Devices = append(all.Devices, &api.Device{ID: id, Health: api.Healthy})
		}
	}
	if err := stream.Send(all); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// free is what is available below each switch, the fullest that still has `size` first.
func (p *plugin) free(available []string, size int) [][]string {
	is := map[string]bool{}
	for _, id := range available {
		is[id] = true
	}
	free := make([][]string, len(p.switches))
	for i, below := range p.switches {
		for _, id := range below {
			if is[id] {
				free[i] = append(free[i], id)
			}
		}
	}
	sort.SliceStable(free, func(a, b int) bool {
		holds, other := len(free[a]) >= size, len(free[b]) >= size
		if holds != other {
			return holds
		}
		if holds {
			return len(free[a]) < len(free[b])
		}
		return len(free[a]) > len(free[b])
	})
	return free
}

func (p *plugin) GetPreferredAllocation(_ context.Context, asked *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	answer := &api.PreferredAllocationResponse{}
	for _, one := range asked.ContainerRequests {
		size := int(one.AllocationSize)
		chosen := append([]string{}, one.MustIncludeDeviceIDs...)
		for _, below := range p.free(one.AvailableDeviceIDs, size) {
			for _, id := range below {
				if len(chosen) < size && !contains(chosen, id) {
					chosen = append(chosen, id)
				}
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerPreferredAllocationResponse{DeviceIDs: chosen})
	}
	return answer, nil
}

func (p *plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, one := range asked.ContainerRequests {
		ids := append([]string{}, one.DevicesIds...)
		sort.Strings(ids)
		answer.ContainerResponses = append(answer.ContainerResponses,
			&api.ContainerAllocateResponse{Envs: map[string]string{"DEVICES": strings.Join(ids, ",")}})
	}
	return answer, nil
}

func contains(list []string, id string) bool {
	for _, one := range list {
		if one == id {
			return true
		}
	}
	return false
}

func serve(resource, directory string, switches [][]string) error {
	own := filepath.Join(directory, strings.ReplaceAll(resource, "/", "-")+".sock")
	if err := os.Remove(own); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", own)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, &plugin{switches: switches})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	kubelet, err := grpc.NewClient("unix://"+filepath.Join(directory, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	_, err = api.NewRegistrationClient(kubelet).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: filepath.Base(own), ResourceName: resource,
		Options: &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}})
	if err != nil {
		return fmt.Errorf("the kubelet does not take %s: %w", resource, err)
	}
	log.Printf("registered %s", resource)
	return <-ended
}

func main() {
	resource := flag.String("resource", "", "what pods ask for, as nvidia.com/gpu")
	devices := flag.String("devices", "", "names, those below one switch with commas, switches with slashes between them")
	directory := flag.String("directory", "/var/lib/kubelet/device-plugins", "the kubelet's sockets")
	flag.Parse()
	var switches [][]string
	for _, below := range strings.Split(*devices, "/") {
		switches = append(switches, strings.Split(below, ","))
	}
	if *resource == "" || *devices == "" {
		log.Fatal("-resource and -devices are needed")
	}
	log.Fatal(serve(*resource, *directory, switches))
}
