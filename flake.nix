{
  description = "Run coding agents in the background, supervise them, and answer their questions";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      manifest = builtins.fromTOML (builtins.readFile ./Cargo.toml);
      forAll = nixpkgs.lib.genAttrs [ "x86_64-linux" "aarch64-linux" ];
    in {
      packages = forAll (system: let pkgs = nixpkgs.legacyPackages.${system}; in {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "adjutant";
          version = manifest.workspace.package.version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          buildType = "dist";
          cargoBuildFlags = [ "--package" "adjutant" ];
          # The tests need a writable home, PID namespaces and the network's loopback.
          doCheck = false;
          nativeBuildInputs = [ pkgs.installShellFiles ];
          postInstall = ''
            installShellCompletion --cmd adj \
              --bash <($out/bin/adj completions bash) \
              --zsh <($out/bin/adj completions zsh) \
              --fish <($out/bin/adj completions fish)
          '';
          meta = {
            license = with pkgs.lib.licenses; [ mit asl20 ];
            mainProgram = "adj";
          };
        };
      });
    };
}
